# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""causal_conv1d_fn and causal_conv1d_update of vLLM 0.11 to 0.15, computed by lathe.

They read and write slots of a pool of states [S,D,L] in place; a slot holds the last width - 1
inputs in its first columns. Later versions name the slot that is padding null_block_id: both names
are taken. Nothing waits for the device. States of prefix caching (block_idx_...) are refused.
"""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lathe._errors import Unsupported
from lathe.compat._conv import convolve, options_for, put_states, with_unread_slot
from lathe.torch._calls import Options, count
from lathe.torch._functions import _conv_final
from lathe.torch._tensors import dense, usable

__all__ = ["PAD_SLOT_ID", "causal_conv1d_fn", "causal_conv1d_update"]

# Rows of docs/python.md, as lathe.compat describes them.
DROP_INS = (
    ("causal_conv1d_fn",
     "states gathered from a pool; padded states; states written to a pool; cast to the states' "
     "dtype; transposed to channel-first",
     "block_idx_first_scheduled_token; block_idx_last_scheduled_token; initial_state_idx; "
     "num_computed_tokens"),
    ("causal_conv1d_update",
     "states updated by copies; padded states; states written to a pool; cast to the states' "
     "dtype",
     "block_idx_last_scheduled_token; initial_state_idx"),
)

PAD_SLOT_ID = -1


def _options(activation: bool | str | None) -> Options:
    if isinstance(activation, bool):
        activation = "silu" if activation else None
    return options_for(activation)


def _refuse_prefix_caching(**given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            raise Unsupported(f"{name} is given; allowed is None: states are written at the end of "
                              "a sequence only, so call once for each block of a prefix cache")


def _typed(x: Tensor, states: Tensor) -> Tensor:
    """Returns x in the dtype of the states, as these functions compute."""
    if x.dtype == states.dtype:
        return x
    count("cast to the states' dtype")
    return x.to(states.dtype)


def _slots(indices: Tensor | None, rows: int, pad: int | None, device: torch.device
           ) -> tuple[Tensor, Tensor]:
    """Returns (the slot of each row, whether it is one: not padding)."""
    if indices is None:
        slots = torch.arange(rows, device=device)
        return slots, torch.ones_like(slots, dtype=torch.bool)
    if indices.dim() != 1:
        raise Unsupported(f"the indices of slots have {indices.dim()} dimensions; allowed is 1: "
                          "one slot for each sequence")
    valid = indices >= 0
    return indices, valid if pad is None or pad < 0 else valid & (indices != pad)


def _check_columns(states: Tensor, needed: int) -> None:
    if states.shape[2] < needed:
        raise ValueError(f"states have {states.shape[2]} columns; allowed are {needed} or more")


def _packed(options: Options, rows: Tensor, weight: Tensor, bias: Tensor | None, before: Tensor,
            offsets: Tensor) -> tuple[Tensor, Tensor]:
    """Returns (y [T,D], the last width - 1 inputs [N,D,W-1]) of packed sequences [T,D]."""
    y, last = _conv_final(options, usable(rows).unsqueeze(0), weight, bias, None,
                          with_unread_slot(before), offsets)
    assert y is not None and last is not None
    return y.squeeze(0), last[..., 1:]


def causal_conv1d_fn(x: Tensor, weight: Tensor, bias: Tensor | None, conv_states: Tensor,
                     query_start_loc: Tensor, cache_indices: Tensor | None = None,
                     has_initial_state: Tensor | None = None,
                     activation: bool | str | None = "silu", pad_slot_id: int = PAD_SLOT_ID,
                     block_idx_first_scheduled_token: Tensor | None = None,
                     block_idx_last_scheduled_token: Tensor | None = None,
                     initial_state_idx: Tensor | None = None,
                     num_computed_tokens: Tensor | None = None, block_size_to_align: int = 0,
                     metadata: Any = None, validate_data: bool = False, *,
                     null_block_id: int | None = None) -> Tensor:
    """Returns y [D,T] of packed sequences x [D,T] and leaves their states in conv_states [S,D,L].

    query_start_loc [N+1], cache_indices [N], has_initial_state [N] bool: whether a slot holds the
    inputs before the sequence, else these are 0. Rows of sequences that are padding are undefined.
    """
    _refuse_prefix_caching(block_idx_first_scheduled_token=block_idx_first_scheduled_token,
                           block_idx_last_scheduled_token=block_idx_last_scheduled_token,
                           initial_state_idx=initial_state_idx,
                           num_computed_tokens=num_computed_tokens)
    options, kept = _options(activation), weight.shape[1] - 1
    weight, bias = dense(weight), dense(bias)
    _check_columns(conv_states, kept)
    pad = pad_slot_id if null_block_id is None else null_block_id
    with torch.no_grad():
        sequences = query_start_loc.shape[0] - 1
        slots, valid = _slots(cache_indices, sequences, pad, x.device)
        pool = conv_states[..., :kept]
        count("states gathered from a pool")
        before = pool.index_select(0, slots.clamp(min=0))
        if has_initial_state is None:
            before = torch.zeros_like(before)
        else:
            before = before.masked_fill(~has_initial_state.to(torch.bool)[:, None, None], 0)
        y, after = _packed(options, _typed(x, conv_states).t(), weight, bias, before,
                           query_start_loc)
        put_states(pool, slots, after, valid & (query_start_loc.diff() > 0))
        y = _typed(y, x).t()
        if x.stride(0) == 1:
            return y
        count("transposed to channel-first")
        return y.contiguous()


def _accepted(rows: Tensor, accepted: Tensor | None, kept: int) -> Tensor:
    """Returns the width - 1 inputs before the new tokens, from the columns of rows [B,D,L]."""
    if accepted is None:
        return rows[..., :kept]
    at = (accepted - 1).unsqueeze(1) + torch.arange(kept, device=rows.device)
    return rows.gather(2, at.to(torch.int64).unsqueeze(1).expand(-1, rows.shape[1], -1))


def causal_conv1d_update(x: Tensor, conv_state: Tensor, weight: Tensor, bias: Tensor | None = None,
                         activation: bool | str | None = None,
                         conv_state_indices: Tensor | None = None,
                         num_accepted_tokens: Tensor | None = None,
                         query_start_loc: Tensor | None = None, max_query_len: int = -1,
                         pad_slot_id: int = PAD_SLOT_ID,
                         block_idx_last_scheduled_token: Tensor | None = None,
                         initial_state_idx: Tensor | None = None, validate_data: bool = False,
                         *, null_block_id: int | None = None) -> Tensor:
    """Returns y, shaped as x, and changes the slots of conv_state [S,D,L] in place.

    x [B,D], [B,D,T], or [tokens,D] with query_start_loc [B+1] and max_query_len. With
    num_accepted_tokens [B] a slot holds the tokens of the last call too, so many of which count,
    and L is at least W - 2 + T. Rows that are padding are undefined.
    """
    _refuse_prefix_caching(block_idx_last_scheduled_token=block_idx_last_scheduled_token,
                           initial_state_idx=initial_state_idx)
    options, kept = _options(activation), weight.shape[1] - 1
    weight, bias = dense(weight), dense(bias)
    pad = pad_slot_id if null_block_id is None else null_block_id
    with torch.no_grad():
        count("states updated by copies")
        new = _typed(x, conv_state)
        if query_start_loc is None:
            new = new.unsqueeze(-1) if x.dim() == 2 else new
            sequences, tokens = new.shape[0], new.shape[2]
        else:
            assert conv_state_indices is not None, "query_start_loc needs conv_state_indices"
            sequences, tokens = query_start_loc.shape[0] - 1, max_query_len
        columns = kept if num_accepted_tokens is None else kept - 1 + tokens
        _check_columns(conv_state, columns)
        slots, valid = _slots(conv_state_indices, sequences, pad, x.device)
        rows = conv_state.index_select(0, slots.clamp(min=0))
        before = _accepted(rows, num_accepted_tokens, kept)
        if query_start_loc is None:
            y = convolve(options, new, weight, bias, before)
            seen = torch.cat([before if num_accepted_tokens is None else before[..., 1:], new], -1)
            after = seen[..., seen.shape[2] - columns:]
            y = y.squeeze(-1) if x.dim() == 2 else y
        else:
            y, after = _packed(options, new, weight, bias, before, query_start_loc)
            valid = valid & (query_start_loc.diff() > 0)
            if num_accepted_tokens is not None:
                after = _with_tokens(before[..., 1:], new, query_start_loc, tokens, rows)
        put_states(conv_state[..., :columns], slots, after, valid)
        return _typed(y, x)


def _with_tokens(before: Tensor, rows: Tensor, offsets: Tensor, most: int, old: Tensor) -> Tensor:
    """Returns states [B,D,W-2+most]: before, then a sequence's tokens, then what was there."""
    kept = before.shape[2]
    at = offsets[:-1, None] + torch.arange(most, device=rows.device)
    given = (at < offsets[1:, None]).unsqueeze(1)
    tokens = rows.index_select(0, at.clamp(max=rows.shape[0] - 1).flatten())
    tokens = tokens.view(*at.shape, rows.shape[1]).transpose(1, 2)
    return torch.cat([before, torch.where(given, tokens, old[..., kept:kept + most])], -1)
