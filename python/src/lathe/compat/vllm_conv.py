# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""causal_conv1d_fn and causal_conv1d_update of vLLM 0.27 to 0.33, computed by lathe.

They read and write slots of a pool of states [S,D,L] in place; a slot holds the last width - 1
inputs in its first columns. A row whose slot is null_block_id (0: vLLM's null block), negative or
none of the pool's, or whose count of accepted tokens its slot cannot hold, is padding: nothing is
read or written. With prefix caching a sequence has a row of slots, one for each block. Older
versions (0.11 on) name the slot that is padding pad_slot_id: that name is taken too, and no other
slot is padding then. max_query_len decides nothing, and nothing waits for the device. A call is one
launch over the pool, whose channels or columns may come last.
"""
from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from lathe._errors import InvalidArgument
from lathe.compat import _places
from lathe.compat._conv import options_for
from lathe.compat._conv_blocks import Blocks, blocks_of
from lathe.compat._conv_checks import (check_filter, check_integers, check_offsets, check_pool,
                                       check_shape, check_tensors)
from lathe.torch._calls import Options, count
from lathe.torch._operator_calls import (CAUSAL_CONV1D_PARTS, CAUSAL_CONV1D_POOL,
                                         CAUSAL_CONV1D_UPDATE)
from lathe.torch._tensors import no_gradients

__all__ = ["PAD_SLOT_ID", "causal_conv1d_fn", "causal_conv1d_update"]

# Rows of docs/python.md, as lathe.compat describes them.
DROP_INS = (
    ("causal_conv1d_fn", "cast to the states' dtype; transposed to channel-first", ""),
    ("causal_conv1d_update", "cast to the states' dtype; result copied into out", ""),
)

PAD_SLOT_ID = -1
_NULL_BLOCK = 0


def _options(activation: bool | str | None) -> Options:
    if isinstance(activation, bool):
        activation = "silu" if activation else None
    return options_for(activation)


def _typed(x: Tensor, states: Tensor) -> Tensor:
    """Returns x in the dtype of the states, as these functions compute."""
    if x.dtype == states.dtype:
        return x
    count("cast to the states' dtype")
    return x.to(states.dtype)


class _Rows(NamedTuple):
    """The slots that the rows of a call write and read, and which slot is padding."""

    written: Tensor
    read: Tensor | None  # None: as written
    null: int


def _rows(name: str, pool: Tensor, indices: Tensor | None, rows: int, null: int,
          blocks: Blocks | None) -> _Rows:
    """Returns the slots that are named, by blocks or one for each row, or the first in order."""
    if blocks is not None:
        return _Rows(blocks.written(), blocks.read(), null)
    if indices is not None:
        check_integers(name, indices, "[B]", (rows,), "give one slot for each sequence")
        return _Rows(indices, None, null)
    if pool.shape[0] < rows:
        raise InvalidArgument(f"there are {pool.shape[0]} states for {rows} sequences; allowed is "
                              f"one for each or more: give {name}, or more states")
    return _Rows(_places.numbers(rows, pool.device), None, PAD_SLOT_ID)


def _but_empty(rows: _Rows, offsets: Tensor) -> Tensor:
    """Returns the slots that are written; a sequence without tokens leaves its slot alone."""
    return torch.where(offsets.diff() > 0, rows.written, -1)


def causal_conv1d_fn(x: Tensor, weight: Tensor, bias: Tensor | None, conv_states: Tensor,
                     query_start_loc: Tensor, cache_indices: Tensor | None = None,
                     has_initial_state: Tensor | None = None,
                     activation: bool | str | None = "silu", pad_slot_id: int = PAD_SLOT_ID,
                     null_block_id: int = _NULL_BLOCK,
                     block_idx_first_scheduled_token: Tensor | None = None,
                     block_idx_last_scheduled_token: Tensor | None = None,
                     initial_state_idx: Tensor | None = None,
                     num_computed_tokens: Tensor | None = None, block_size_to_align: int = 0,
                     metadata: Any = None, validate_data: bool = False) -> Tensor:
    """Returns y [D,T] of packed sequences x [D,T] and leaves their states in conv_states [S,D,L].

    query_start_loc [N+1], cache_indices [N], has_initial_state [N] bool: whether a slot holds the
    inputs before the sequence, else these are 0. With blocks of a prefix cache cache_indices is
    [N, blocks]; the slots of the blocks that the call fills get the states at their ends. Rows of
    sequences that are padding are undefined.
    """
    if cache_indices is not None and pad_slot_id >= 0:  # a second name of padding
        check_tensors(cache_indices=cache_indices)
        cache_indices = cache_indices.masked_fill(cache_indices == pad_slot_id, -1)
    given = {"last": block_idx_last_scheduled_token, "initial": initial_state_idx,
             "first": block_idx_first_scheduled_token, "computed": num_computed_tokens,
             "size": block_size_to_align}
    y = prefilled(x, weight, bias, conv_states, query_start_loc, cache_indices, has_initial_state,
                  activation, null_block_id, given)[0].t()
    if x.stride(0) == 1:
        return y
    count("transposed to channel-first")
    return y.contiguous()


def prefilled(x: Tensor, weight: Tensor, bias: Tensor | None, conv_states: Tensor,
              query_start_loc: Tensor, cache_indices: Tensor | None,
              has_initial_state: Tensor | None, activation: bool | str | None, null: int,
              in_blocks: dict[str, Any] | None = None, split: tuple[int, ...] = ()
              ) -> list[Tensor]:
    """Returns y [T,D], or its parts by `split`, and leaves the states in the pool.

    in_blocks: what blocks_of takes of a prefix cache.
    """
    check_tensors(x=x, weight=weight, bias=bias, conv_states=conv_states,
                  query_start_loc=query_start_loc, cache_indices=cache_indices,
                  has_initial_state=has_initial_state)
    options = _options(activation)
    check_filter(x, weight, (2,), 0, "[D, T]")
    check_offsets("query_start_loc", query_start_loc)
    sequences, kept = query_start_loc.shape[0] - 1, weight.shape[1] - 1
    check_pool("conv_states", conv_states, weight.shape[0], kept)
    if has_initial_state is not None:
        check_shape("has_initial_state", has_initial_state, "[N]", (sequences,),
                    "give one for each sequence")
    blocks = None
    if in_blocks is not None:
        blocks = blocks_of("cache_indices", cache_indices, sequences, **in_blocks, prefill=True)
    with no_gradients():
        rows = _rows("cache_indices", conv_states, cache_indices, sequences, null, blocks)
        known = (_places.filled(sequences, 0, x.device) if has_initial_state is None
                 else (has_initial_state != 0).to(torch.int32))
        given = dict(
            x=_typed(x, conv_states).t().unsqueeze(0), weight=weight, bias=bias,
            cu_seqlens=query_start_loc,
            state_pool=conv_states[..., :kept], state_indices=_but_empty(rows, query_start_loc),
            source_indices=rows.read, has_initial_state=known)
        if blocks is not None:
            given.update(blocks.checkpoints(query_start_loc, x.shape[1]))
        options = (*options, ("null_slot", rows.null))
        if split:
            options = (*options, ("split", ",".join(map(str, split))))
        call = CAUSAL_CONV1D_PARTS if split else CAUSAL_CONV1D_POOL
        found = call(options, *call.ordered(**given))[:max(len(split), 1)]
        return [_typed(each.squeeze(0), x) for each in found]


def causal_conv1d_update(x: Tensor, conv_state: Tensor, weight: Tensor, bias: Tensor | None = None,
                         activation: bool | str | None = None,
                         conv_state_indices: Tensor | None = None,
                         num_accepted_tokens: Tensor | None = None,
                         query_start_loc: Tensor | None = None, max_query_len: int = -1,
                         null_block_id: int = _NULL_BLOCK,
                         block_idx_last_scheduled_token: Tensor | None = None,
                         initial_state_idx: Tensor | None = None, validate_data: bool = False,
                         out: Tensor | None = None, *, pad_slot_id: int | None = None) -> Tensor:
    """Returns y, shaped as x, and changes the slots of conv_state [S,D,L] in place.

    x [B,D], [B,D,T], or [tokens,D] with query_start_loc [B+1]. With num_accepted_tokens [B] a slot
    holds the tokens of the last call too, so many of which count, and L is at least W - 2 + T. With
    blocks of a prefix cache conv_state_indices is [B, blocks]: the state is read from one block's
    slot and written to another's. Rows of x that are padding are undefined. A given `out` is
    written and returned.
    """
    check_tensors(x=x, conv_state=conv_state, weight=weight, bias=bias,
                  conv_state_indices=conv_state_indices, num_accepted_tokens=num_accepted_tokens,
                  query_start_loc=query_start_loc, out=out)
    options, pad = _options(activation), null_block_id if pad_slot_id is None else pad_slot_id
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
    blocks = blocks_of("conv_state_indices", conv_state_indices, sequences,
                       block_idx_last_scheduled_token, initial_state_idx)
    with no_gradients():
        rows = _rows("conv_state_indices", conv_state, conv_state_indices, sequences, pad, blocks)
        y = _updated(options, _typed(x, conv_state), conv_state, weight, bias, rows,
                     num_accepted_tokens, query_start_loc)
        y = _typed(y, x)
        if out is None:
            return y
        count("result copied into out")
        return out.copy_(y)


def _updated(options: Options, x: Tensor, conv_state: Tensor, weight: Tensor, bias: Tensor | None,
             rows: _Rows, accepted: Tensor | None, offsets: Tensor | None) -> Tensor:
    """Returns y, shaped as x, and changes the pool."""
    kept = weight.shape[1] - 1
    pool = conv_state if accepted is not None or conv_state.shape[2] == kept else (
        conv_state[..., :kept])
    if accepted is not None and accepted.dtype is not torch.int32:
        accepted = accepted.clamp(-1, 2**31 - 1).int()
    written = rows.written
    if offsets is not None and rows.read is not None:
        written = _but_empty(rows, offsets)
    tokens = x.transpose(1, 2) if x.dim() == 3 else x
    y: Tensor = CAUSAL_CONV1D_UPDATE(
        (*options, ("null_slot", rows.null)), *CAUSAL_CONV1D_UPDATE.ordered(
            x=tokens, weight=weight, bias=bias, state=pool, cu_seqlens=offsets,
            state_indices=written, source_indices=rows.read, num_accepted_tokens=accepted))[0]
    return y.transpose(1, 2) if x.dim() == 3 else y
