# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The functions of causal-conv1d 1.6.1 (Dao-AILab), computed by lathe.

Channel-last x, which is rows.transpose(1, 2), is read where it lies; a channel-first x is
transposed each way. More is accepted than there: widths up to 8, any number of channels, any
strides, and states in either layout. An update is a single launch over the states where they lie,
and a row whose slot is none of the pool's is padding.
"""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lathe._errors import InvalidArgument
from lathe.compat._conv import options_for, with_unread_slot, without_unread_slot
from lathe.compat._conv_checks import (check_dtype, check_filter, check_integers,
                                       check_offsets, check_pool, check_shape, check_tensors)
from lathe.torch._calls import Options, count
from lathe.torch._operator_calls import (CAUSAL_CONV1D, CAUSAL_CONV1D_BWD, CAUSAL_CONV1D_FINAL,
                                         CAUSAL_CONV1D_UPDATE)
from lathe.torch._statistics import is_compiling
from lathe.torch._tensors import (dense, no_second_gradient, upstream, upstream_or_zeros,
                                  usable, wants_gradient)

__all__ = ["causal_conv1d_fn", "causal_conv1d_update", "causal_conv1d_varlen_states"]

# Rows of docs/python.md, as lathe.compat describes them.
DROP_INS = (
    ("causal_conv1d_fn",
     "transposed to channel-first; offsets made of seq_idx; rows of a negative seq_idx set to 0; "
     "copied to one row of sequences; padded states; cut states; copied to final_states_out",
     ""),
    ("causal_conv1d_update", "", ""),
    ("causal_conv1d_varlen_states", "states cut out of a packed input", ""),
)


def _offsets_of(seq_idx: Tensor) -> Tensor:
    """Returns the offsets of the runs of equal numbers in seq_idx [B,T], rows one after the other.

    How many runs there are stays on the device: with empty ones at the end there is one a token.
    """
    count("offsets made of seq_idx")
    batch, tokens = seq_idx.shape
    total = batch * tokens
    starts = torch.ones_like(seq_idx, dtype=torch.bool)
    starts[:, 1:] = seq_idx[:, 1:] != seq_idx[:, :-1]
    flat = starts.flatten()
    offsets = torch.full((total + 2,), total, dtype=torch.int32, device=seq_idx.device)
    place = torch.where(flat, flat.cumsum(0) - 1, total + 1)
    offsets.scatter_(0, place, torch.arange(total, dtype=torch.int32, device=seq_idx.device))
    return offsets[:total + 1]


def _forward(options: Options, final: bool, x: Tensor, weight: Tensor, bias: Tensor | None,
             seq_idx: Tensor | None, offsets: Tensor | None, states: Tensor | None
             ) -> tuple[Tensor, Tensor | None]:
    """Returns (y [B,D,T], final states [B,D,W-1])."""
    rows = usable(x.transpose(1, 2))
    batch, tokens, channels = rows.shape
    if offsets is not None:
        rows = _packed(rows)
    state = None if states is None else with_unread_slot(states)
    call = CAUSAL_CONV1D_FINAL if final else CAUSAL_CONV1D
    y, *rest = call(options, rows, weight, bias, None, state, offsets)
    assert y is not None
    if seq_idx is not None:
        count("rows of a negative seq_idx set to 0")
        y = y.view(batch, tokens, channels).masked_fill_((seq_idx < 0).unsqueeze(-1), 0)
    if x.stride(1) == 1:
        y.transpose_(1, 2)  # no view is made, so that callers may change y in place
    else:
        count("transposed to channel-first")
        y = y.transpose(1, 2).contiguous()
    return y, without_unread_slot(rest[0]) if rest and rest[0] is not None else None


def _packed(rows: Tensor) -> Tensor:
    """Returns [B,T,D] as [1,B*T,D]."""
    batch, tokens, channels = rows.shape
    # A trace counts nothing, and that of a backward ends in torch 2.6 where strides are asked for.
    if batch > 1 and not is_compiling() and rows.stride(0) != tokens * rows.stride(1):
        count("copied to one row of sequences")
    return rows.reshape(1, batch * tokens, channels)


class _CausalConv1dFn(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, options: Options, final: bool, x: Tensor, weight: Tensor,
                bias: Tensor | None, seq_idx: Tensor | None, states: Tensor | None) -> Any:
        offsets = None if seq_idx is None else _offsets_of(seq_idx)
        ctx.save_for_backward(x, weight, bias, seq_idx, offsets, states)
        ctx.options = options
        ctx.set_materialize_grads(False)
        y, last = _forward(options, final, x, weight, bias, seq_idx, offsets, states)
        return (y, last) if final else y

    @staticmethod
    @no_second_gradient
    def backward(ctx: Any, saved: Any, dout: Tensor | None, dlast: Tensor | None = None) -> Any:
        x, weight, bias, seq_idx, offsets, states = saved
        rows = usable(x.transpose(1, 2))
        shape = rows.shape
        dy = upstream_or_zeros(None if dout is None else dout.transpose(1, 2), rows)
        if seq_idx is not None:
            count("rows of a negative seq_idx set to 0")
            hidden = (seq_idx < 0).unsqueeze(-1)  # x there may be NaN, which 0 * NaN would spread
            rows, dy = (_packed(each.masked_fill(hidden, 0)) for each in (rows, dy))
        state = None if states is None else with_unread_slot(states)
        dfinal = None if dlast is None else with_unread_slot(upstream(dlast))
        dx, dweight, dbias, dstate = CAUSAL_CONV1D_BWD(
            ctx.options, *CAUSAL_CONV1D_BWD.ordered(
                x=rows, weight=weight, bias=bias, initial_state=state, cu_seqlens=offsets, dy=dy,
                dfinal_state=dfinal))
        assert dx is not None
        dstates = None if dstate is None else without_unread_slot(dstate)
        return (None, None, dx.view(shape).transpose(1, 2), dweight, dbias, None, dstates)


def causal_conv1d_fn(x: Tensor, weight: Tensor, bias: Tensor | None = None,
                     seq_idx: Tensor | None = None, initial_states: Tensor | None = None,
                     return_final_states: bool = False, final_states_out: Tensor | None = None,
                     activation: str | None = None) -> Any:
    """Returns y [B,D,T], or (y, final_states) with return_final_states.

    x [B,D,T], weight [D,W], bias [D], states [B,D,W-1]. seq_idx [B,T] int32: tokens of one number
    that follow each other are a sequence, and y is 0 where it is negative. final_states_out is
    written in place and returned.
    """
    check_tensors(x=x, weight=weight, bias=bias, seq_idx=seq_idx, initial_states=initial_states,
                  final_states_out=final_states_out)
    options, final = options_for(activation), bool(return_final_states)
    check_filter(x, weight, (3,), 1, "[B, D, T]")
    weight, bias = dense(weight), dense(bias)
    if seq_idx is not None:
        assert initial_states is None, "initial_states must be None if seq_idx is not None"
        assert not final, "final states are not returned if seq_idx is not None"
        check_integers("seq_idx", seq_idx, "[B, T]", (x.shape[0], x.shape[2]),
                       "give one number for each token of x")
    for name, states in (("initial_states", initial_states), ("final_states_out", final_states_out)):
        if states is not None:
            check_shape(name, states, "[B, D, W - 1]",
                        (x.shape[0], weight.shape[0], weight.shape[1] - 1), "slice it")
            check_dtype(name, states, "x", x.dtype)
    if wants_gradient((x, weight, bias, initial_states)):
        found = _CausalConv1dFn.apply(options, final, x, weight, bias, seq_idx, initial_states)
        y, last = found if final else (found, None)
    else:
        offsets = None if seq_idx is None else _offsets_of(seq_idx)
        y, last = _forward(options, final, x, weight, bias, seq_idx, offsets, initial_states)
    if not final or last is None:
        return y
    if final_states_out is not None:
        count("copied to final_states_out")
        last = final_states_out.copy_(last)
    return y, last


def causal_conv1d_update(x: Tensor, conv_state: Tensor, weight: Tensor, bias: Tensor | None = None,
                         activation: str | None = None, cache_seqlens: Tensor | None = None,
                         conv_state_indices: Tensor | None = None) -> Tensor:
    """Returns y for x [B,D] or [B,D,T] and changes conv_state [S,D,L], L >= W-1, in place.

    cache_seqlens [B]: the state is a ring. conv_state_indices [B]: the rows' slots; one outside of
    the pool is padding, whose y is 0. No two rows name one slot. Has no gradient.
    """
    check_tensors(x=x, conv_state=conv_state, weight=weight, bias=bias, cache_seqlens=cache_seqlens,
                  conv_state_indices=conv_state_indices)
    if wants_gradient((x, weight, bias)):
        with torch.no_grad():
            return causal_conv1d_update(x, conv_state, weight, bias, activation, cache_seqlens,
                                        conv_state_indices)
    options = options_for(activation)
    _check_update(x, conv_state, weight, cache_seqlens, conv_state_indices)
    tokens = x.unsqueeze(2) if x.dim() == 2 else x
    y = _updated(options, tokens, conv_state, dense(weight), dense(bias), cache_seqlens,
                 conv_state_indices)
    return y.squeeze(2) if x.dim() == 2 else y


def _updated(options: Options, x: Tensor, conv_state: Tensor, weight: Tensor, bias: Tensor | None,
             cache_seqlens: Tensor | None, indices: Tensor | None) -> Tensor:
    """Returns y [B,D,T] of x [B,D,T], and changes the states where they lie."""
    if cache_seqlens is not None and cache_seqlens.dtype is not torch.int32:
        cache_seqlens = torch.remainder(cache_seqlens, max(conv_state.shape[2], 1)).int()
    # States of W columns in the order of the rows have a kernel of their own, which takes no gaps.
    plain = (conv_state.shape[2] == weight.shape[1] and cache_seqlens is None and indices is None)
    one = x.shape[2] == 1 and (not plain or conv_state.is_contiguous())
    y: Tensor = CAUSAL_CONV1D_UPDATE(options, *CAUSAL_CONV1D_UPDATE.ordered(
        x=usable(x.squeeze(2) if one else x.transpose(1, 2)), weight=weight, bias=bias,
        state=conv_state, state_indices=dense(indices), cache_seqlens=dense(cache_seqlens)))[0]
    return y.unsqueeze(2) if one else y.transpose(1, 2)


def _check_update(x: Tensor, conv_state: Tensor, weight: Tensor, cache_seqlens: Tensor | None,
                  indices: Tensor | None) -> None:
    check_filter(x, weight, (2, 3), 1, "[B, D] or [B, D, T]")
    rows, channels, width = x.shape[0], *weight.shape
    check_pool("conv_state", conv_state, channels, width - 1)
    check_dtype("conv_state", conv_state, "x", x.dtype)
    if indices is not None:
        check_integers("conv_state_indices", indices, "[B]", (rows,), "give one slot for each row")
    elif conv_state.shape[0] != rows:
        raise InvalidArgument(f"conv_state has {conv_state.shape[0]} states for {rows} rows; "
                              "allowed is one for each row: give conv_state_indices, or slice it")
    if cache_seqlens is not None:
        check_integers("cache_seqlens", cache_seqlens, "[B]", (rows,), "give one for each row")


def causal_conv1d_varlen_states(x: Tensor, cu_seqlens: Tensor, state_len: int) -> Tensor:
    """Returns the last state_len tokens of each sequence [N,D,state_len]; torch computes it.

    x [T,D]. Slots before the start of a sequence are 0. Has no gradient.
    """
    check_tensors(x=x, cu_seqlens=cu_seqlens)
    check_shape("x", x, "[T, D]", (None, None), "pack the sequences into one")
    check_offsets("cu_seqlens", cu_seqlens)
    count("states cut out of a packed input")
    ends = cu_seqlens[1:, None]
    at = ends + torch.arange(-state_len, 0, device=x.device)
    if x.shape[0] == 0:
        return x.new_zeros(at.shape[0], state_len, x.shape[1]).transpose(1, 2)
    rows = x.detach().index_select(0, at.clamp(0, x.shape[0] - 1).flatten())
    reached = (at >= cu_seqlens[:-1, None]) & (at >= 0) & (at < x.shape[0])
    rows = rows.view(*at.shape, x.shape[1]).masked_fill_(~reached.unsqueeze(-1), 0)
    return rows.transpose(1, 2)
