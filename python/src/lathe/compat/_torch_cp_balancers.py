# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Load balancers of torch 2.15: in which order tokens are before they are cut into even parts."""
from __future__ import annotations

from typing import Any, Sequence

import torch
from torch import Tensor


class _LoadBalancer:
    """Says in which order the tokens of a buffer are before they are cut into even parts."""

    def _generate_indices(self, restore: bool = False) -> Tensor | None:
        """Returns [1, S] or [B, S]: positions in the order of the cut; restore: where each went."""
        raise NotImplementedError


def _restored(order: Tensor, restore: bool) -> Tensor:
    return order.argsort(-1) if restore else order


def _head_tail(length: int, world: int) -> list[int]:
    if length % (2 * world) != 0:
        raise ValueError(f"seq_length {length} is not a multiple of 2 * world_size = {2 * world}")
    chunk = length // (2 * world)
    order: list[int] = []
    for rank in range(world):
        order += range(rank * chunk, (rank + 1) * chunk)
        order += range(length - (rank + 1) * chunk, length - rank * chunk)
    return order


class _HeadTailLoadBalancer(_LoadBalancer):
    """Gives rank r the chunks r and 2W-1-r of 2W."""

    def __init__(self, seq_length: int, world_size: int, device: str | torch.device) -> None:
        self.seq_length, self.world_size, self.device = seq_length, world_size, device

    def _generate_indices(self, restore: bool = False) -> Tensor:
        order = torch.tensor([_head_tail(self.seq_length, self.world_size)], dtype=torch.int64,
                             device=self.device)
        return _restored(order, restore)


class _PerDocumentHeadTailLoadBalancer(_LoadBalancer):
    """Gives each rank two chunks of each document; a list of lengths for each row of the batch."""

    def __init__(self, seq_length_per_doc: list[list[int]], world_size: int,
                 device: str | torch.device) -> None:
        self.seq_length_per_doc, self.world_size = seq_length_per_doc, world_size
        self.device = device

    def _row(self, lengths: Sequence[int]) -> list[int]:
        parts: list[list[int]] = [[] for _ in range(self.world_size)]
        start = 0
        for length in lengths:
            order = [start + at for at in _head_tail(length, self.world_size)]
            each = length // self.world_size
            for rank, part in enumerate(parts):
                part += order[rank * each:(rank + 1) * each]
            start += length
        return [at for part in parts for at in part]

    def _generate_indices(self, restore: bool = False) -> Tensor:
        rows = [self._row(lengths) for lengths in self.seq_length_per_doc]
        return _restored(torch.tensor(rows, dtype=torch.int64, device=self.device), restore)


class _PTRRLoadBalancer(_LoadBalancer):
    """Deals blocks of queries to the ranks by the keys that they see, the longest first."""

    def __init__(self, block_mask: Any, world_size: int) -> None:
        self.block_mask, self.world_size = block_mask, world_size

    @staticmethod
    def ptrr_scheduling(process_time: Tensor, group_size: int) -> Tensor:
        """Returns [groups, tasks of a group]: which tasks each group gets, in ascending order."""
        tasks = process_time.numel()
        if tasks % group_size != 0:
            raise NotImplementedError(f"{tasks} tasks are not a multiple of {group_size} groups")
        order = torch.argsort(process_time, descending=True, stable=True)
        deals = order.view(-1, group_size).clone()
        deals[1::2] = deals[1::2].flip(-1)
        return torch.sort(deals.T.contiguous(), dim=-1)[0]

    def _generate_indices(self, restore: bool = False) -> Tensor:
        mask = self.block_mask
        seen = mask.kv_num_blocks
        if mask.full_kv_num_blocks is not None:
            seen = seen + mask.full_kv_num_blocks
        blocks = seen.sum(1)  # [B, blocks of queries], over the heads
        size = mask.BLOCK_SIZE[0]
        within = torch.arange(size, device=blocks.device)
        deals = [self.ptrr_scheduling(row, self.world_size).reshape(-1, 1) for row in blocks]
        rows = [(deal * size + within).reshape(-1) for deal in deals]
        return _restored(torch.stack(rows), restore)


def _create_default_load_balancer(seq_length: int, world_size: int, device: str | torch.device
                                  ) -> _LoadBalancer | None:
    """Returns head-tail where it divides the length, else none: parts are contiguous."""
    if seq_length % (2 * world_size) != 0:
        return None
    return _HeadTailLoadBalancer(seq_length, world_size, device)
