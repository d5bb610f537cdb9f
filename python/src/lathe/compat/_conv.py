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
from lathe.torch._operator_calls import CAUSAL_CONV1D, CAUSAL_CONV1D_UPDATE
from lathe.torch._tensors import dense, usable

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
    tensors = CAUSAL_CONV1D.ordered(x=rows, weight=weight, bias=bias,
                                    initial_state=with_unread_slot(history))
    y: Tensor = CAUSAL_CONV1D(options, *tensors)[0]
    return y.transpose(1, 2)


def rolled(options: Options, x: Tensor, weight: Tensor, bias: Tensor | None, states: Tensor
           ) -> Tensor:
    """Returns y [B,D] for one token x [B,D] each; rolls states [B,D,W] in place.

    States that are not contiguous are copied there and back.
    """
    state = dense(states)
    y: Tensor = CAUSAL_CONV1D_UPDATE(options, *CAUSAL_CONV1D_UPDATE.ordered(
        x=usable(x), weight=weight, bias=bias, state=state))[0]
    if state is not states:
        count("states updated by copies")
        states.copy_(state)
    return y


def advanced(options: Options, x: Tensor, weight: Tensor, bias: Tensor | None, states: Tensor
             ) -> tuple[Tensor, Tensor]:
    """Returns (y [B,D,T], the states after x [B,D,T]) of states [B,D,L] with the newest input last.

    States of W slots may be changed on the way.
    """
    width, slots = weight.shape[1], states.shape[2]
    if x.shape[2] == 1 and slots in (width - 1, width):
        state = states if slots == width else with_unread_slot(states)
        y = rolled(options, x.squeeze(2), weight, bias, state)
        return y.unsqueeze(2), state[..., width - slots:]
    y = convolve(options, x, weight, bias, states[..., slots - (width - 1):])
    return y, torch.cat([states, x], -1)[..., x.shape[2]:]


# ---- pools of states -----------------------------------------------------------------------------


class Slots(NamedTuple):
    """The slots of a pool that the rows of a batch have."""

    at: Tensor  # [B] int64; an index of the pool, also where a row is padding
    valid: Tensor  # [B] bool; false: the row is padding

    def only(self, rows: Tensor) -> Slots:
        """Returns the same slots, with the rows as padding that are false in `rows` [B]."""
        return Slots(self.at, self.valid & rows)


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


def put_states(pool: Tensor, slots: Slots, states: Tensor) -> None:
    """Writes the states of the rows to their slots of a pool, but not those of padding.

    Nothing waits for the device: a row that is padding writes what its slot has to hold anyway.
    The last of several rows that name one slot counts.
    """
    count("states written to a pool")
    if pool.shape[0] == 0:
        return
    at, valid = slots
    numbers = torch.arange(at.shape[0], device=at.device)
    owners = torch.full((pool.shape[0],), -1, dtype=torch.int64, device=at.device)
    owners.scatter_reduce_(0, at, torch.where(valid, numbers, -1), "amax")
    owner = owners.index_select(0, at)  # the row whose state belongs into a row's slot; -1: none
    new = states.index_select(0, owner.clamp(min=0))
    held = pool.index_select(0, at)
    pool.index_copy_(0, at, torch.where((owner >= 0)[:, None, None], new, held))
