# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""vLLM's convolution where torch takes states out of a pool and puts them back."""
from __future__ import annotations

import torch
from torch import Tensor

from lathe.compat._conv import (Slots, advanced, convolve, put_states, take_states,
                                with_unread_slot)
from lathe.torch._calls import Options, count
from lathe.torch._operator_calls import CAUSAL_CONV1D_FINAL
from lathe.torch._tensors import usable


def packed(options: Options, rows: Tensor, weight: Tensor, bias: Tensor | None, before: Tensor,
            offsets: Tensor) -> tuple[Tensor, Tensor]:
    """Returns (y [T,D], the last width - 1 inputs [N,D,W-1]) of packed sequences [T,D]."""
    y, last = CAUSAL_CONV1D_FINAL(options, *CAUSAL_CONV1D_FINAL.ordered(
        x=usable(rows).unsqueeze(0), weight=weight, bias=bias,
        initial_state=with_unread_slot(before), cu_seqlens=offsets))
    assert y is not None and last is not None
    return y.squeeze(0), last[..., 1:]


def updated_by_copies(options: Options, x: Tensor, conv_state: Tensor, weight: Tensor,
                      bias: Tensor | None, slots: Slots, source: Slots, accepted: Tensor | None,
                      offsets: Tensor | None) -> Tensor:
    """Returns y of an update whose states are copied out of the pool and back."""
    count("states updated by copies")
    if offsets is not None:
        return _sequences(options, x, conv_state, weight, bias, slots, source, accepted, offsets)
    if x.dim() == 2:
        return _rows(options, x.unsqueeze(2), conv_state, weight, bias, slots, source,
                     accepted).squeeze(2)
    return _rows(options, x, conv_state, weight, bias, slots, source, accepted)


def _rows(options: Options, x: Tensor, conv_state: Tensor, weight: Tensor, bias: Tensor | None,
          slots: Slots, source: Slots, accepted: Tensor | None) -> Tensor:
    """Returns y [B,D,T] of x [B,D,T], 0 in rows that are padding, and leaves the states."""
    kept = weight.shape[1] - 1
    if x.shape[2] == 0:
        return torch.empty_like(x)  # nothing is accepted either
    if accepted is None:
        pool = conv_state[..., :kept]
        y, after = advanced(options, x, weight, bias, _before(pool, source))
    else:
        pool = conv_state[..., :kept - 1 + x.shape[2]]
        slots, before = _accepted(conv_state, slots, source, accepted, kept)
        y = convolve(options, x, weight, bias, before)
        after = torch.cat([before[..., 1:], x], -1)
    put_states(pool, slots, after)
    return y.masked_fill_(~slots.valid[:, None, None], 0)


def _sequences(options: Options, x: Tensor, conv_state: Tensor, weight: Tensor,
               bias: Tensor | None, slots: Slots, source: Slots, accepted: Tensor | None,
               offsets: Tensor) -> Tensor:
    """Returns y [T,D] of packed sequences x [T,D], and leaves the states."""
    kept = weight.shape[1] - 1
    slots = slots.only(offsets.diff() > 0)
    if accepted is None:
        pool = conv_state[..., :kept]
        y, after = packed(options, x, weight, bias, _before(pool, source), offsets)
        put_states(pool, slots, after)
        return y
    slots, before = _accepted(conv_state, slots, source, accepted, kept)
    y, _ = packed(options, x, weight, bias, before, offsets)
    held = take_states(conv_state, slots)[..., kept - 1:]
    put_states(conv_state, slots, torch.cat([before[..., 1:], _with_tokens(held, x, offsets)], -1))
    return y


def _before(pool: Tensor, source: Slots) -> Tensor:
    """Returns the states of slots; zeros where a row reads none."""
    return take_states(pool, source).masked_fill(~source.valid[:, None, None], 0)


def _accepted(pool: Tensor, slots: Slots, source: Slots, accepted: Tensor, kept: int
              ) -> tuple[Slots, Tensor]:
    """Returns (the slots, the W - 1 inputs before the new tokens [B,D,W-1]).

    A row is padding, as in KDA, if by its count these inputs lie outside of its slot.
    """
    most = pool.shape[2] - kept + 1
    slots = slots.only((accepted >= 1) & (accepted <= most))
    at = (accepted.clamp(1, most) - 1).unsqueeze(1) + torch.arange(kept, device=pool.device)
    at = at.to(torch.int64).unsqueeze(1).expand(-1, pool.shape[1], -1)
    return slots, _before(pool, source).gather(2, at)


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
