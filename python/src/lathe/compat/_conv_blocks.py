# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Blocks of a prefix cache, in which vLLM keeps the states of a convolution.

A sequence has a row of slots, one for each block of block_size tokens. A call reads the state
before it from one of them, writes that of its end to another, and those at the ends of the blocks
between to theirs. Numbers of blocks and tokens are on the device, and any may be garbage.
"""
from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lathe._errors import InvalidArgument
from lathe.compat import _places
from lathe.compat._conv_checks import check_integers


def slot_of_block(indices: Tensor, block: Tensor) -> Tensor:
    """Returns [B] slots of a row's block; -1 where the row has no such block."""
    blocks = indices.shape[1]
    if blocks == 0:
        return block.new_full(block.shape, -1)
    there = (block >= 0) & (block < blocks)
    found = indices.gather(1, block.clamp(0, blocks - 1).to(torch.int64).unsqueeze(1)).squeeze(1)
    return torch.where(there, found, -1)


class Blocks(NamedTuple):
    """The blocks that a call names: a row of slots for each sequence, and which it uses."""

    indices: Tensor  # [B, blocks]
    last: Tensor
    initial: Tensor
    first: Tensor | None = None
    computed: Tensor | None = None  # tokens of each sequence before the call
    size: int = 0

    def written(self) -> Tensor:
        """Returns the slot of each sequence's end."""
        return slot_of_block(self.indices, self.last)

    def read(self) -> Tensor:
        """Returns the slot of each sequence's state before the call."""
        return slot_of_block(self.indices, self.initial)

    def checkpoints(self, offsets: Tensor, tokens: int) -> dict[str, Tensor]:
        """Returns the checkpoints at the ends of blocks that a prefill fills before its last one.

        As many blocks as the tokens can fill are looked at, so nothing waits for the device.
        """
        assert self.first is not None and self.computed is not None
        most = tokens // self.size + self.indices.shape[0]
        filled = (self.last.long() - self.first.long()).clamp(0, most)
        starts = _places.offsets(filled)
        sequence, place = _places.find(starts, most)
        there = sequence < self.indices.shape[0]
        block = _places.chosen(self.first, sequence).long() + place
        ends = (block + 1) * self.size - _places.chosen(self.computed, sequence).long()
        there &= (ends > 0) & (ends <= _places.chosen(offsets.diff(), sequence))
        slots = slot_of_block(_places.chosen(self.indices, sequence), block)
        return {"cu_checkpoints": starts.clamp(max=most).int(),
                "checkpoint_tokens": torch.where(there, ends, 0).int(),
                "checkpoint_slots": torch.where(there, slots, -1).clamp(-1, 2**31 - 1).int()}


def blocks_of(name: str, indices: Tensor | None, rows: int, last: Tensor | None,
              initial: Tensor | None, first: Tensor | None = None, computed: Tensor | None = None,
              size: int = 0, prefill: bool = False) -> Blocks | None:
    """Returns the blocks of a call, or None for one that has a slot for each sequence."""
    given = {"block_idx_last_scheduled_token": last, "initial_state_idx": initial}
    if prefill:
        given.update(block_idx_first_scheduled_token=first, num_computed_tokens=computed)
    if all(each is None for each in given.values()):
        return None
    for each, tensor in given.items():
        if tensor is None:
            others = ", ".join(other for other in given if given[other] is not None)
            raise InvalidArgument(f"{each} is not given with {others}; allowed are all of them, or "
                                  "none")
        check_integers(each, tensor, "[B]", (rows,), "give one for each sequence")
    if indices is None or indices.dim() != 2:
        raise InvalidArgument(f"{name} is {'not given' if indices is None else 'of one dimension'} "
                              "with blocks of a prefix cache; allowed is [B, blocks]")
    check_integers(name, indices, "[B, blocks]", (rows, None), "give a row for each sequence")
    if prefill and size <= 0:
        raise InvalidArgument(f"block_size_to_align is {size}; allowed with blocks of a prefix "
                              "cache is their number of tokens")
    assert last is not None and initial is not None
    return Blocks(indices, last, initial, first, computed, size)
