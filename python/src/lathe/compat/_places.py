# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Offsets, lengths and tables of servers, made into indices that torch can be given.

Servers send padding: -1, stale numbers, rows past the last offset. Here it is data like any other:
no index that leaves this module is out of range, whatever comes in, and nothing waits for the
device. Out of range it would end the context of a GPU, and -1 would be the last one of something.
"""
from __future__ import annotations

from typing import Any, Callable

import torch
from torch import Tensor

from lathe._errors import InvalidArgument
from lathe.torch._calls import count, traced
from lathe.torch._tensors import dense

_kept: dict[Any, Tensor] = {}  # tensors that depend on nothing but a size, by what they are
_MOST_KEPT = 256
_LONGEST_KEPT = 1 << 16


def capturing() -> bool:
    """Returns true while a CUDA graph is captured."""
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def _keep(key: tuple[Any, ...], made: Callable[[], Tensor]) -> Tensor:
    """Returns the tensor that made() returns; it is made once for a key, if it is short."""
    found = None if traced() else _kept.get(key)
    if found is None:
        found = made()
        # Memory of a capture belongs to its graph.
        if not traced() and not capturing() and (
                len(_kept) < _MOST_KEPT and len(found) <= _LONGEST_KEPT):
            _kept[key] = found
    return found


def numbers(number: int, device: torch.device) -> Tensor:
    """Returns 0, 1, .. number - 1 as int32."""
    return _keep((number, device),
                 lambda: torch.arange(number, dtype=torch.int32, device=device))


def filled(number: int, value: int, device: torch.device) -> Tensor:
    """Returns the same value so many times as int32."""
    return _keep((number, value, device),
                 lambda: torch.full((number,), value, dtype=torch.int32, device=device))


def int32(name: str, tensor: Tensor, shape: str = "[B]") -> Tensor:
    """Returns a tensor of integers as int32 without gaps; checks its number of dimensions."""
    if tensor.dim() != 1 + shape.count(","):
        raise InvalidArgument(f"{name} has shape {list(tensor.shape)}; allowed is {shape}, of as "
                              "many dimensions")
    if tensor.dtype == torch.int32:
        return dense(tensor)
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex or tensor.dtype == torch.bool:
        raise InvalidArgument(f"{name} has dtype {tensor.dtype}; allowed is int32")
    count("cast to int32")
    # A cast wraps around: a large number would become one that belongs to somebody.
    return tensor.clamp(-1, 2**31 - 1).int()


def table32(name: str, table: Tensor) -> Tensor:
    """Returns a block table as int32 without gaps."""
    return int32(name, table, "[B, pages of a sequence]")


def offsets32(name: str, starts: Tensor) -> Tensor:
    """Returns offsets as int32 without gaps."""
    found = int32(name, starts, "[B+1]")
    if found.shape[0] == 0:
        raise InvalidArgument(f"{name} has no offset; allowed are B+1, so 1 and more")
    return found


def check_batch(**given: int) -> None:
    """Raises an error if arguments are of different numbers of sequences."""
    names = list(given)
    for name in names[1:]:
        if given[name] != given[names[0]]:
            raise InvalidArgument(f"{name} has {given[name]} sequences; allowed are as many as "
                                  f"{names[0]} has, {given[names[0]]}")


# ---- packed rows ---------------------------------------------------------------------------------


def offsets(lengths: Tensor, dtype: torch.dtype = torch.int32) -> Tensor:
    """Returns [N+1] offsets of sequences with these lengths."""
    return torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).to(dtype)


def sequence_of(starts: Tensor, rows: int) -> Tensor:
    """Returns the sequence of each packed row; N, their number, for rows past the last offset."""
    at = numbers(rows, starts.device).to(starts.dtype)
    return torch.searchsorted(dense(starts[1:]), at, right=True)


def chosen(tensor: Tensor, index: Tensor) -> Tensor:
    """Returns rows of a tensor; an index out of range takes any row, of no rows zeros."""
    if tensor.shape[0] == 0:
        # Joined to the tensor, so that autograd finds its gradient of no elements.
        return torch.cat([tensor, tensor.new_zeros((index.shape[0], *tensor.shape[1:]))])
    index = index.clamp(0, tensor.shape[0] - 1)
    # Within vmap this is a gather, for which torch 2.6 wants 64-bit indices.
    return tensor.index_select(0, index.long() if traced() else index)


def find(starts: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """Returns, for each packed row, its sequence (N past the last offset) and its place there."""
    sequence = sequence_of(starts, rows)
    return sequence, numbers(rows, starts.device) - starts.index_select(0, sequence)


# ---- pages ---------------------------------------------------------------------------------------


def chosen_tables(table: Tensor, index: Tensor) -> Tensor:
    """Returns rows of a block table; an index out of range gives a row without pages."""
    there = (index >= 0) & (index < table.shape[0])
    return chosen(table, index).masked_fill(~there[:, None], -1)


def page_of(table: Tensor, sequence: Tensor, slot: Tensor, pages: int) -> Tensor:
    """Returns table[sequence, slot]; -1 where that is out of range, or is none of the pages."""
    width = table.shape[1]
    there = (sequence >= 0) & (sequence < table.shape[0]) & (slot >= 0) & (slot < width)
    at = sequence.clamp(0, max(table.shape[0] - 1, 0)) * width + slot.clamp(0, max(width - 1, 0))
    entry = chosen(table.flatten(), at)
    return torch.where(there & (entry >= 0) & (entry < pages), entry, -1)
