# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""causal_conv1d_fn and causal_conv1d_update of vLLM 0.11 to 0.15, computed by lathe.

They read and write slots of a pool of states [S,D,L] in place; a slot holds the last width - 1
inputs in its first columns. Later versions name the slot that is padding null_block_id: both names
are taken. A row whose slot is that one or none of the pool's, or whose count of accepted tokens its
slot cannot hold, is padding, too: nothing is read or written. max_query_len decides nothing, and
nothing waits for the device. States of prefix caching (block_idx_...) are refused.
"""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lathe._errors import InvalidArgument, Unsupported
from lathe.compat._conv import (Slots, advanced, convolve, options_for, put_states, slots_of,
                                take_states, with_unread_slot)
from lathe.compat._conv_checks import (check_filter, check_integers, check_offsets, check_pool,
                                       check_shape, check_tensors)
from lathe.torch._calls import Options, count
from lathe.torch._operator_calls import CAUSAL_CONV1D_FINAL
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


def _slots(name: str, pool: Tensor, indices: Tensor | None, rows: int, pad: int | None) -> Slots:
    """Returns the slots of the rows: those that are named, or the first ones in order."""
    if indices is not None:
        if indices.dim() > 1:
            raise Unsupported(f"{name} has {indices.dim()} dimensions; allowed is 1: one slot for "
                              "each sequence")
        check_integers(name, indices, "[B]", (rows,), "give one slot for each sequence")
        return slots_of(pool, indices, pad)
    if pool.shape[0] < rows:
        raise InvalidArgument(f"there are {pool.shape[0]} states for {rows} sequences; allowed is "
                              f"one for each or more: give {name}, or more states")
    return slots_of(pool, torch.arange(rows, device=pool.device))


def _packed(options: Options, rows: Tensor, weight: Tensor, bias: Tensor | None, before: Tensor,
            offsets: Tensor) -> tuple[Tensor, Tensor]:
    """Returns (y [T,D], the last width - 1 inputs [N,D,W-1]) of packed sequences [T,D]."""
    y, last = CAUSAL_CONV1D_FINAL(options, *CAUSAL_CONV1D_FINAL.ordered(
        x=usable(rows).unsqueeze(0), weight=weight, bias=bias,
        initial_state=with_unread_slot(before), cu_seqlens=offsets))
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
    check_tensors(x=x, weight=weight, bias=bias, conv_states=conv_states,
                  query_start_loc=query_start_loc, cache_indices=cache_indices,
                  has_initial_state=has_initial_state)
    options, pad = _options(activation), pad_slot_id if null_block_id is None else null_block_id
    check_filter(x, weight, (2,), 0, "[D, T]")
    check_offsets("query_start_loc", query_start_loc)
    sequences, kept = query_start_loc.shape[0] - 1, weight.shape[1] - 1
    check_pool("conv_states", conv_states, weight.shape[0], kept)
    if has_initial_state is not None:
        check_shape("has_initial_state", has_initial_state, "[N]", (sequences,),
                    "give one for each sequence")
    weight, bias = dense(weight), dense(bias)
    with torch.no_grad():
        slots = _slots("cache_indices", conv_states, cache_indices, sequences, pad)
        pool = conv_states[..., :kept]
        count("states gathered from a pool")
        before = take_states(pool, slots)
        if has_initial_state is None:
            before = torch.zeros_like(before)
        else:
            before = before.masked_fill(~has_initial_state.to(torch.bool)[:, None, None], 0)
        y, after = _packed(options, _typed(x, conv_states).t(), weight, bias, before,
                           query_start_loc)
        put_states(pool, slots.only(query_start_loc.diff() > 0), after)
        y = _typed(y, x).t()
        if x.stride(0) == 1:
            return y
        count("transposed to channel-first")
        return y.contiguous()


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

    x [B,D], [B,D,T], or [tokens,D] with query_start_loc [B+1]. With num_accepted_tokens [B] a slot
    holds the tokens of the last call too, so many of which count, and L is at least W - 2 + T. Rows
    of x that are padding are undefined.
    """
    _refuse_prefix_caching(block_idx_last_scheduled_token=block_idx_last_scheduled_token,
                           initial_state_idx=initial_state_idx)
    check_tensors(x=x, conv_state=conv_state, weight=weight, bias=bias,
                  conv_state_indices=conv_state_indices, num_accepted_tokens=num_accepted_tokens,
                  query_start_loc=query_start_loc)
    options, pad = _options(activation), pad_slot_id if null_block_id is None else null_block_id
    if query_start_loc is None:
        check_filter(x, weight, (2, 3), 1, "[B, D] or [B, D, T]")
        sequences, tokens = x.shape[0], x.shape[2] if x.dim() == 3 else 1
    else:
        assert conv_state_indices is not None, "query_start_loc needs conv_state_indices"
        check_filter(x, weight, (2,), 1, "[tokens, D]")
        check_offsets("query_start_loc", query_start_loc)
        sequences, tokens = query_start_loc.shape[0] - 1, max_query_len
    columns = weight.shape[1] - 1
    if num_accepted_tokens is not None:
        check_integers("num_accepted_tokens", num_accepted_tokens, "[B]", (sequences,),
                       "give one for each sequence")
        columns += max(tokens - 1, 0)
    check_pool("conv_state", conv_state, weight.shape[0], columns)
    weight, bias = dense(weight), dense(bias)
    with torch.no_grad():
        count("states updated by copies")
        slots = _slots("conv_state_indices", conv_state, conv_state_indices, sequences, pad)
        new = _typed(x, conv_state)
        if query_start_loc is not None:
            y = _sequences(options, new, conv_state, weight, bias, slots, num_accepted_tokens,
                           query_start_loc)
        elif x.dim() == 2:
            y = _rows(options, new.unsqueeze(2), conv_state, weight, bias, slots,
                      num_accepted_tokens).squeeze(2)
        else:
            y = _rows(options, new, conv_state, weight, bias, slots, num_accepted_tokens)
        return _typed(y, x)


def _rows(options: Options, x: Tensor, conv_state: Tensor, weight: Tensor, bias: Tensor | None,
          slots: Slots, accepted: Tensor | None) -> Tensor:
    """Returns y [B,D,T] of x [B,D,T], 0 in rows that are padding, and leaves the states."""
    kept = weight.shape[1] - 1
    if x.shape[2] == 0:
        return torch.empty_like(x)  # nothing is accepted either
    if accepted is None:
        pool = conv_state[..., :kept]
        y, after = advanced(options, x, weight, bias, take_states(pool, slots))
    else:
        pool = conv_state[..., :kept - 1 + x.shape[2]]
        slots, before = _accepted(conv_state, slots, accepted, kept)
        y = convolve(options, x, weight, bias, before)
        after = torch.cat([before[..., 1:], x], -1)
    put_states(pool, slots, after)
    return y.masked_fill_(~slots.valid[:, None, None], 0)


def _sequences(options: Options, x: Tensor, conv_state: Tensor, weight: Tensor,
               bias: Tensor | None, slots: Slots, accepted: Tensor | None, offsets: Tensor
               ) -> Tensor:
    """Returns y [T,D] of packed sequences x [T,D], and leaves the states."""
    kept = weight.shape[1] - 1
    slots = slots.only(offsets.diff() > 0)
    if accepted is None:
        pool = conv_state[..., :kept]
        y, after = _packed(options, x, weight, bias, take_states(pool, slots), offsets)
        put_states(pool, slots, after)
        return y
    slots, before = _accepted(conv_state, slots, accepted, kept)
    y, _ = _packed(options, x, weight, bias, before, offsets)
    held = take_states(conv_state, slots)[..., kept - 1:]
    put_states(conv_state, slots, torch.cat([before[..., 1:], _with_tokens(held, x, offsets)], -1))
    return y


def _accepted(pool: Tensor, slots: Slots, accepted: Tensor, kept: int) -> tuple[Slots, Tensor]:
    """Returns (the slots, the W - 1 inputs before the new tokens [B,D,W-1]).

    A row is padding, as in KDA, if by its count these inputs lie outside of its slot.
    """
    most = pool.shape[2] - kept + 1
    slots = slots.only((accepted >= 1) & (accepted <= most))
    at = (accepted.clamp(1, most) - 1).unsqueeze(1) + torch.arange(kept, device=pool.device)
    at = at.to(torch.int64).unsqueeze(1).expand(-1, pool.shape[1], -1)
    return slots, take_states(pool, slots).gather(2, at)


def _with_tokens(held: Tensor, rows: Tensor, offsets: Tensor) -> Tensor:
    """Returns columns [B,D,L] with the tokens of each sequence in the first ones.

    The lengths are read on the device, so that a max_query_len that is wrong does no harm.
    """
    if rows.shape[0] == 0:
        return held
    at = offsets[:-1, None] + torch.arange(held.shape[2], device=rows.device)
    given = (at >= 0) & (at < offsets[1:, None]) & (at < rows.shape[0])
    tokens = rows.index_select(0, at.clamp(0, rows.shape[0] - 1).flatten())
    tokens = tokens.view(*at.shape, rows.shape[1]).transpose(1, 2)
    return torch.where(given.unsqueeze(1), tokens, held)
