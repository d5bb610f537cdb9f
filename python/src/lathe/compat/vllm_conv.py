# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""causal_conv1d_fn and causal_conv1d_update of vLLM 0.27 to 0.29, computed by lathe.

They read and write slots of a pool of states [S,D,L] in place; a slot holds the last width - 1
inputs in its first columns. A row whose slot is null_block_id (0: vLLM's null block), negative or
none of the pool's, or whose count of accepted tokens its slot cannot hold, is padding: nothing is
read or written. With prefix caching a sequence has a row of slots, one for each block. Older
versions (0.11 on) name the slot that is padding pad_slot_id: that name is taken too, and no other
slot is padding then. max_query_len decides nothing, and nothing waits for the device. An update is
one launch where columns of the pool are contiguous; for pools with the channels last, states are
copied.
"""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lathe._errors import InvalidArgument
from lathe.compat._conv import Slots, options_for, put_states, slots_of, take_states
from lathe.compat._conv_blocks import Blocks, blocks_of, put_blocks
from lathe.compat._conv_checks import (check_filter, check_integers, check_offsets, check_pool,
                                       check_shape, check_tensors)
from lathe.compat._conv_copies import packed, updated_by_copies
from lathe.torch._calls import Options, count
from lathe.torch._operator_calls import CAUSAL_CONV1D_UPDATE
from lathe.torch._tensors import dense, usable

__all__ = ["PAD_SLOT_ID", "causal_conv1d_fn", "causal_conv1d_update"]

# Rows of docs/python.md, as lathe.compat describes them.
DROP_INS = (
    ("causal_conv1d_fn",
     "states gathered from a pool; padded states; states written to a pool; cast to the states' "
     "dtype; transposed to channel-first", ""),
    ("causal_conv1d_update",
     "states updated by copies; padded states; states written to a pool; cast to the states' "
     "dtype; result copied into out", ""),
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


def _slots(name: str, pool: Tensor, indices: Tensor | None, rows: int, pad: int | None) -> Slots:
    """Returns the slots of the rows: those that are named, or the first ones in order."""
    if indices is not None:
        check_integers(name, indices, "[B]", (rows,), "give one slot for each sequence")
        return slots_of(pool, indices, pad)
    if pool.shape[0] < rows:
        raise InvalidArgument(f"there are {pool.shape[0]} states for {rows} sequences; allowed is "
                              f"one for each or more: give {name}, or more states")
    return slots_of(pool, torch.arange(rows, device=pool.device))


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
    blocks = blocks_of("cache_indices", cache_indices, sequences, block_idx_last_scheduled_token,
                       initial_state_idx, block_idx_first_scheduled_token, num_computed_tokens,
                       block_size_to_align, prefill=True)
    weight, bias = dense(weight), dense(bias)
    with torch.no_grad():
        if cache_indices is not None and pad_slot_id >= 0:  # a second name of padding
            cache_indices = cache_indices.masked_fill(cache_indices == pad_slot_id, -1)
        slots, source = _named("cache_indices", conv_states, cache_indices, sequences,
                               null_block_id, blocks)
        pool = conv_states[..., :kept]
        count("states gathered from a pool")
        before = take_states(pool, source)
        known = source.valid
        if has_initial_state is None:
            known = torch.zeros_like(known)
        else:
            known = known & has_initial_state.to(torch.bool)
        before = before.masked_fill(~known[:, None, None], 0)
        rows = _typed(x, conv_states).t()
        y, after = packed(options, rows, weight, bias, before, query_start_loc)
        put_states(pool, slots.only(query_start_loc.diff() > 0), after)
        if blocks is not None:
            put_blocks(blocks, pool, rows, before, query_start_loc, null_block_id)
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
    weight, bias = dense(weight), dense(bias)
    with torch.no_grad():
        new = _typed(x, conv_state)
        if conv_state.stride(2) == 1 and conv_state.numel() > 0:
            y = _launched(options, new, conv_state, weight, bias, conv_state_indices, blocks, pad,
                          num_accepted_tokens, query_start_loc)
        else:
            slots, source = _named("conv_state_indices", conv_state, conv_state_indices, sequences,
                                   pad, blocks)
            y = updated_by_copies(options, new, conv_state, weight, bias, slots, source,
                                  num_accepted_tokens, query_start_loc)
        y = _typed(y, x)
        if out is None:
            return y
        count("result copied into out")
        return out.copy_(y)


def _named(name: str, pool: Tensor, indices: Tensor | None, rows: int, pad: int,
           blocks: Blocks | None) -> tuple[Slots, Slots]:
    """Returns the slots that the rows write, and those that they read."""
    if blocks is not None:
        return slots_of(pool, blocks.written(), pad), slots_of(pool, blocks.read(), pad)
    slots = _slots(name, pool, indices, rows, pad)
    return slots, slots


def _launched(options: Options, x: Tensor, conv_state: Tensor, weight: Tensor, bias: Tensor | None,
              indices: Tensor | None, blocks: Blocks | None, pad: int, accepted: Tensor | None,
              offsets: Tensor | None) -> Tensor:
    """Returns y of an update in one launch, over a pool whose columns are contiguous."""
    rows = x.shape[0] if offsets is None else offsets.shape[0] - 1
    source = None
    if blocks is not None:
        indices, source = blocks.written(), blocks.read()
    elif indices is None:
        _slots("conv_state_indices", conv_state, None, rows, pad)  # there are enough
        conv_state, pad = conv_state[:rows], PAD_SLOT_ID
    else:
        check_integers("conv_state_indices", indices, "[B]", (rows,),
                       "give one slot for each sequence")
    pool = conv_state if accepted is not None else conv_state[..., :weight.shape[1] - 1]
    if accepted is not None and accepted.dtype is not torch.int32:
        accepted = accepted.clamp(-1, 2**31 - 1).int()
    tokens = x.transpose(1, 2) if x.dim() == 3 else x
    y: Tensor = CAUSAL_CONV1D_UPDATE((*options, ("null_slot", pad)), *CAUSAL_CONV1D_UPDATE.ordered(
        x=usable(tokens), weight=weight, bias=bias, state=pool, cu_seqlens=dense(offsets),
        state_indices=dense(indices), source_indices=source,
        num_accepted_tokens=dense(accepted)))[0]
    return y.transpose(1, 2) if x.dim() == 3 else y
