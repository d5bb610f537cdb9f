# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Helpers of the causal convolutions whose states lie in slots of a pool, as in serving caches.

Those states have width - 1 slots; the operators here keep `width`, the oldest of which is never
read for a result. No index that a caller gives reaches torch's indexing as it is: on a GPU one that
is out of range ends the process's context.
"""
from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from lathe.torch._calls import Options, count, options_of

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


# ---- pools of states -----------------------------------------------------------------------------


class Slots(NamedTuple):
    """The slots of a pool that the rows of a batch have."""

    at: Tensor  # [B] int64; an index of the pool, also where a row is padding
    valid: Tensor  # [B] bool; false: the row is padding

def slots_of(pool: Tensor, indices: Tensor, padding: int | None = None) -> Slots:
    """Returns the slots that indices [B] name. Padding is `padding` and what is outside of the pool.

    The kernels of KDA hold to the same.
    """
    slots = pool.shape[0]
    valid = (indices >= 0) & (indices < slots)
    if padding is not None and padding >= 0:
        valid = valid & (indices != padding)
    return Slots(indices.clamp(0, max(slots - 1, 0)).to(torch.int64), valid)


def take_states(pool: Tensor, slots: Slots) -> Tensor:
    """Returns the states of the rows, in memory of their own; those of padding are anything."""
    if pool.shape[0] == 0:
        return pool.new_zeros(slots.at.shape[0], *pool.shape[1:])
    return pool.index_select(0, slots.at)
