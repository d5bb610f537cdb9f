# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Helpers of the causal convolutions that keep a state of width - 1 slots, as serving caches do.

The operators here keep `width` slots, the oldest of which is never read for a result.
"""
from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from lathe.torch._calls import Options, count, options_of
from lathe.torch._functions import _conv
from lathe.torch._tensors import usable

_SILU = options_of(activation="silu")
_NONE = options_of(activation="none")


def options_for(activation: str | None) -> Options:
    """Returns a call's options. Raises the peer's NotImplementedError for another activation."""
    if activation is None:
        return _NONE
    if activation in ("silu", "swish"):
        return _SILU
    raise NotImplementedError(f"activation must be None, silu, or swish, but it is {activation!r}")


def with_unread_slot(states: Tensor) -> Tensor:
    """Returns states [..,D,W-1] as [..,D,W]: the oldest slot is 0."""
    count("padded states")
    return pad(states, (1, 0)).contiguous()


def without_unread_slot(states: Tensor) -> Tensor:
    """Returns states [N,D,W] as [N,D,W-1], channel-last, in memory of their own."""
    count("cut states")
    return states[..., 1:].transpose(1, 2).contiguous().transpose_(1, 2)


def convolve(options: Options, x: Tensor, weight: Tensor, bias: Tensor | None, history: Tensor
             ) -> Tensor:
    """Returns y [B,D,T] for x [B,D,T] that follows history [B,D,W-1]; there is no gradient."""
    rows = usable(x.transpose(1, 2))
    y: Tensor = _conv(options, rows, weight, bias, None, with_unread_slot(history), None)[0]
    return y.transpose(1, 2)


def put_states(pool: Tensor, slots: Tensor, rows: Tensor, valid: Tensor) -> None:
    """Writes rows to the slots of a pool, except rows that are not valid. Waits for nothing.

    A row that is not valid writes once more what the first valid row writes, so that no slot is
    written with two values; if none is valid, a slot is written with what it holds.
    """
    count("states written to a pool")
    numbers = torch.arange(slots.shape[0], device=slots.device)
    source = torch.where(valid, numbers, valid.to(torch.int32).argmax())
    to = slots.index_select(0, source).clamp(min=0).to(torch.int64)
    written = rows.index_select(0, source)
    kept = ~valid.index_select(0, source)
    pool.index_copy_(0, to, torch.where(kept[:, None, None], pool.index_select(0, to), written))
