# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The functions of causal-conv1d 1.6.1 (Dao-AILab), computed by lathe.

Channel-last x, which is rows.transpose(1, 2), is read where it lies; a channel-first x is
transposed each way. More is accepted than there: widths up to 8, any number of channels, any
strides, and states in either layout.
"""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lathe.compat._conv import (convolve, options_for, put_states, with_unread_slot,
                                without_unread_slot)
from lathe.torch._calls import Options, count
from lathe.torch._functions import _conv, _conv_bwd, _conv_final, _conv_update
from lathe.torch._tensors import (dense, no_second_gradient, upstream, upstream_or_zeros,
                                  usable, wants_gradient)

__all__ = ["causal_conv1d_fn", "causal_conv1d_update", "causal_conv1d_varlen_states"]

# Rows of docs/python.md, as lathe.compat describes them.
DROP_INS = (
    ("causal_conv1d_fn",
     "transposed to channel-first; offsets made of seq_idx; copied to one row of sequences; "
     "padded states; cut states; copied to final_states_out",
     ""),
    ("causal_conv1d_update",
     "states updated by copies; padded states; states written to a pool",
     ""),
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
    y, *rest = (_conv_final if final else _conv)(options, rows, weight, bias, None, state, offsets)
    assert y is not None
    if seq_idx is not None:
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
    if batch > 1 and rows.stride(0) != tokens * rows.stride(1):
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
            dy = dy.masked_fill((seq_idx < 0).unsqueeze(-1), 0)
            rows, dy = _packed(rows), _packed(dy)
        state = None if states is None else with_unread_slot(states)
        dfinal = None if dlast is None else with_unread_slot(upstream(dlast))
        dx, dweight, dbias, dstate = _conv_bwd(ctx.options, rows, weight, bias, None, state,
                                               offsets, dy, dfinal)
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
    options, weight, bias = options_for(activation), dense(weight), dense(bias)
    if seq_idx is not None:
        assert initial_states is None, "initial_states must be None if seq_idx is not None"
        assert not return_final_states, "final states are not returned if seq_idx is not None"
    final = bool(return_final_states)
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


def _ring(state: Tensor, x: Tensor, taken: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Returns (the width - 1 inputs before x, the state after x) of rings [B,D,L].

    The newest input of row b is at (taken[b] - 1) % L.
    """
    channels, slots, tokens = state.shape[1], state.shape[2], x.shape[2]
    back = torch.arange(1 - width, 0, device=x.device)
    at = torch.remainder(taken.unsqueeze(1) + back, slots).to(torch.int64).unsqueeze(1)
    before = state.gather(2, at.expand(-1, channels, -1))
    kept = min(tokens, slots)  # a ring holds no more than its slots
    ahead = torch.arange(tokens - kept, tokens, device=x.device)
    to = torch.remainder(taken.unsqueeze(1) + ahead, slots).to(torch.int64).unsqueeze(1)
    return before, state.scatter(2, to.expand(-1, channels, -1), x[..., tokens - kept:])


def causal_conv1d_update(x: Tensor, conv_state: Tensor, weight: Tensor, bias: Tensor | None = None,
                         activation: str | None = None, cache_seqlens: Tensor | None = None,
                         conv_state_indices: Tensor | None = None) -> Tensor:
    """Returns y for x [B,D] or [B,D,T] and changes conv_state [S,D,L], L >= W-1, in place.

    cache_seqlens [B]: the state is a ring. conv_state_indices [B]: the rows' slots; a negative one
    is padding, whose y is 0. Has no gradient. One launch computes one token of states with L = W
    that are contiguous and in order; the rest is a causal_conv1d between copies of the states.
    """
    if wants_gradient((x, weight, bias)):
        with torch.no_grad():
            return causal_conv1d_update(x, conv_state, weight, bias, activation, cache_seqlens,
                                        conv_state_indices)
    options, weight, bias = options_for(activation), dense(weight), dense(bias)
    width = weight.shape[1]
    if (x.dim() == 2 and cache_seqlens is None and conv_state_indices is None
            and conv_state.shape[2] == width and conv_state.is_contiguous()):
        y: Tensor = _conv_update(options, usable(x), weight, bias, None, conv_state)[0]
        return y
    if conv_state.shape[2] < width - 1:
        raise RuntimeError(f"conv_state has {conv_state.shape[2]} slots; allowed are width - 1 = "
                           f"{width - 1} or more")
    return _update(options, x, conv_state, weight, bias, cache_seqlens, conv_state_indices)


def _update(options: Options, x: Tensor, conv_state: Tensor, weight: Tensor, bias: Tensor | None,
            cache_seqlens: Tensor | None, slots: Tensor | None) -> Tensor:
    """Computes causal_conv1d_update by causal_conv1d between copies of the states."""
    count("states updated by copies")
    width, given = weight.shape[1], x
    x = x.unsqueeze(-1) if x.dim() == 2 else x
    rows = conv_state if slots is None else conv_state.index_select(0, slots.clamp(min=0))
    if cache_seqlens is not None:
        before, after = _ring(rows, x, cache_seqlens, width)
    else:
        before = rows[..., rows.shape[2] - (width - 1):]
        after = torch.cat([rows, x], -1)[..., -rows.shape[2]:]
    y = convolve(options, x, weight, bias, before)
    if slots is None:
        conv_state.copy_(after)
    else:
        valid = slots >= 0
        put_states(conv_state, slots, after, valid)
        y = y.masked_fill(~valid[:, None, None], 0)
    return y.squeeze(-1) if given.dim() == 2 else y


def causal_conv1d_varlen_states(x: Tensor, cu_seqlens: Tensor, state_len: int) -> Tensor:
    """Returns the last state_len tokens of each sequence [N,D,state_len]; torch computes it.

    x [T,D]. Slots before the start of a sequence are 0. Has no gradient.
    """
    count("states cut out of a packed input")
    at = cu_seqlens[1:, None] + torch.arange(-state_len, 0, device=x.device)
    if x.shape[0] == 0:
        return x.new_zeros(at.shape[0], state_len, x.shape[1]).transpose(1, 2)
    rows = x.detach().index_select(0, at.clamp(min=0).flatten()).view(*at.shape, x.shape[1])
    reached = at >= cu_seqlens[:-1, None]
    return rows.masked_fill(~reached.unsqueeze(-1), 0).transpose(1, 2)
