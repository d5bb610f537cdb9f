# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""What layers remember between calls, and padded batches as packed rows."""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lathe._errors import InvalidArgument, Unsupported

_FIRST = 256  # tokens that a growing cache of keys has room for


class Cache:
    """The states of a model's layers, by their layer_idx. A layer fills its own at the first call.

    length: tokens that caches of keys have room for; None: they grow, twice as long each time.
    """

    def __init__(self, length: int | None = None) -> None:
        self.length = length
        self.layers: dict[int, Any] = {}

    def reset(self) -> None:
        """Forgets all states."""
        self.layers.clear()


class Keys:
    """Keys and values of one attention layer: k, v [B,room,HK,D], and `lengths` [B] of them."""

    def __init__(self, like_k: Tensor, like_v: Tensor, batch: int, length: int | None) -> None:
        self.fixed = length
        self.tokens = 0  # the most that a sequence can have
        room = _FIRST if length is None else length
        self.k = like_k.new_zeros((batch, room, *like_k.shape[-2:]))
        self.v = like_v.new_zeros((batch, room, *like_v.shape[-2:]))
        self.lengths = torch.zeros(batch, dtype=torch.int32, device=like_k.device)

    def make_room(self, tokens: int) -> None:
        """Sees to it that `tokens` more fit."""
        needed, room = self.tokens + tokens, self.k.shape[1]
        if needed <= room:
            return
        if self.fixed is not None:
            raise InvalidArgument(f"{needed} tokens come into a cache of {self.fixed}; make it "
                                  "with a larger length, or without one")
        more = max(needed, 2 * room) - room
        self.k, self.v = (torch.nn.functional.pad(each, (0, 0, 0, 0, 0, more))
                          for each in (self.k, self.v))

    def added(self, tokens: int, lengths: Tensor | int) -> None:
        """Counts tokens that have been written: at most `tokens`, of each row `lengths`."""
        self.tokens += tokens
        self.lengths = self.lengths + lengths


class States:
    """States of one KDA layer: `conv` [N,D,W] of q, k and v, `state` [N,HV,V,K] and its slots."""

    def __init__(self, conv: tuple[Tensor | None, ...], state: Tensor) -> None:
        self.conv, self.state = conv, state
        self.slots = torch.arange(state.shape[0], dtype=torch.int32, device=state.device)


def refuse_gradients(cache: Cache | None) -> None:
    """Raises Unsupported if gradients are recorded, which would end at the cache."""
    if cache is not None and torch.is_grad_enabled():
        raise Unsupported("cache is given while gradients are recorded, and none goes through a "
                          "cache; call the layer under torch.no_grad()")


class Packing:
    """The rows of a padded batch one after the other, without the padding, on the device alone.

    pack() gives [1,B*T,...]: the tokens of all sequences, then the padding. `starts` [B+1] are the
    sequences' offsets; rows past the last one belong to none.
    """

    def __init__(self, mask: Tensor) -> None:
        if mask.dim() != 2:
            raise InvalidArgument(f"attention_mask has shape {list(mask.shape)}; allowed is [B,T], "
                                  "of 1 for tokens and 0 for padding")
        self.shape = tuple(mask.shape)
        is_token = mask.to(torch.bool)
        self.lengths = is_token.sum(1, dtype=torch.int32)
        self.starts = torch.nn.functional.pad(self.lengths.cumsum(0, dtype=torch.int32), (1, 0))
        self.kept = is_token.flatten()
        self.order = self.kept.logical_not().to(torch.uint8).argsort(stable=True)
        self.place = self.order.argsort()

    def pack(self, x: Tensor) -> Tensor:
        """Returns [1,B*T,...] of [B,T,...]."""
        if x.shape[:2] != self.shape:
            raise InvalidArgument(f"attention_mask has shape {list(self.shape)} with inputs of "
                                  f"{list(x.shape[:2])}; allowed are equal ones")
        return x.flatten(0, 1).index_select(0, self.order)[None]

    def unpack(self, x: Tensor) -> Tensor:
        """Returns [B,T,...] of [1,B*T,...]; padding is 0."""
        rows = x[0].index_select(0, self.place)
        rows = torch.where(self.kept.view(-1, *(1,) * (rows.dim() - 1)), rows, 0)
        return rows.view(*self.shape, *rows.shape[1:])

    def in_rows(self, x: Tensor) -> Tensor:
        """Returns [B,T,...] of [1,B*T,...] with each sequence at the start of its row.

        What follows a sequence in its row is any other row's.
        """
        batch, tokens = self.shape
        at = self.starts[:-1, None] + torch.arange(tokens, device=x.device)
        at = at.clamp(max=batch * tokens - 1).flatten()
        return x[0].index_select(0, at).view(batch, tokens, *x.shape[2:])


def packing_of(attention_mask: Tensor | None, cu_seqlens: Tensor | None, continues: bool
               ) -> Packing | None:
    """Returns how a padded batch is packed; None if it is not padded."""
    if attention_mask is None:
        return None
    if cu_seqlens is not None:
        raise InvalidArgument("attention_mask and cu_seqlens are given; allowed is one: packed "
                              "sequences have no padding")
    if continues:
        raise InvalidArgument("attention_mask is given with a cache that has tokens; allowed is "
                              "None: padding belongs to the first call")
    return Packing(attention_mask)
