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
from lathe.compat._conv import Slots, put_states, slots_of
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


def put_blocks(blocks: Blocks, pool: Tensor, rows: Tensor, before: Tensor, offsets: Tensor,
               padding: int) -> None:
    """Writes the states at the ends of blocks that a prefill fills before its last one.

    rows [T,D] are its inputs, before [N,D,W-1] what is in front of each sequence. As many blocks
    as tokens can fill are looked at, so nothing waits for the device.
    """
    assert blocks.first is not None and blocks.computed is not None
    kept = before.shape[2]
    most = rows.shape[0] // blocks.size + before.shape[0]
    if rows.shape[0] == 0 or before.shape[0] == 0:
        return
    filled = (blocks.last.long() - blocks.first.long()).clamp(0, most)
    sequence, place = _places.find(_places.offsets(filled), most)
    there = sequence < before.shape[0]
    sequence = sequence.clamp(max=before.shape[0] - 1).long()
    block = blocks.first.long().index_select(0, sequence) + place
    starts, lengths = offsets[:-1].long(), offsets.diff().long()
    ends = (block + 1) * blocks.size - blocks.computed.long().index_select(0, sequence)
    there &= (ends > 0) & (ends <= lengths.index_select(0, sequence))
    # Column i of a state is the input kept - i places before the block's end.
    at = ends.unsqueeze(1) - kept + torch.arange(kept, device=rows.device)
    inputs = (at + starts.index_select(0, sequence).unsqueeze(1)).clamp(0, rows.shape[0] - 1)
    states = rows.index_select(0, inputs.flatten()).view(most, kept, -1).transpose(1, 2)
    older = before.index_select(0, sequence).gather(
        2, (at + kept).clamp(0, kept - 1).unsqueeze(1).expand(-1, before.shape[1], -1))
    states = torch.where((at >= 0).unsqueeze(1), states, older)
    slots = slot_of_block(blocks.indices.index_select(0, sequence), block)
    found = slots_of(pool, slots, padding)
    put_states(pool, Slots(found.at, found.valid & there), states)
