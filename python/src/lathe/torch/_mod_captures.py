# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The tensors from outside that mods read, and how kernels get them: in one dimension each.

Tensors that share memory, such as rows of one table, are one capture of a kernel. Their extents,
strides and where they begin are numbers of the mod, so that other lengths need no other text.
"""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lathe._errors import Unsupported
from lathe.torch._calls import count

MOST_CAPTURES = 4

_PLAIN = (Tensor, torch.nn.Parameter)
_READABLE = (torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64)


class Captures:
    """The captured tensors of a record; `groups` has the tensors of each capture of a kernel."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.groups: list[list[int]] = []
        self._groups: dict[Any, int] = {}

    def add(self, tensor: Tensor) -> tuple[int, int]:
        """Returns the number of a tensor and that of its group."""
        if tensor.is_neg():
            count("copied a capture")
            tensor = tensor.resolve_neg()
        key: Any = id(tensor)
        if type(tensor) in _PLAIN and tensor.numel() > 0 and tensor.layout == torch.strided:
            key = (tensor.untyped_storage().data_ptr(), tensor.dtype)
        elif not tensor.is_contiguous():  # one of torch.compile, whose memory nobody knows yet
            tensor = tensor.contiguous()
        at, group = len(self.tensors), self._groups.setdefault(key, len(self.groups))
        if group == len(self.groups):
            if group == MOST_CAPTURES:
                raise Unsupported(
                    f"score_mod and mask_mod capture over {MOST_CAPTURES} tensors, of which a "
                    f"block_mask is one; allowed are {MOST_CAPTURES}, so join some of them")
            self.groups.append([])
        self.groups[group].append(at)
        self.tensors.append(tensor)
        return at, group

    def values(self) -> list[Any]:
        """Returns for each tensor where it begins in its group, its extents and its strides."""
        first = [min(self._begin(at) for at in group) for group in self.groups]
        found: list[Any] = []
        for group, begin in zip(self.groups, first):
            for at in group:
                each = self.tensors[at]
                found += (self._begin(at) - begin, *each.shape, *each.stride())
        return found

    def places(self) -> list[int]:
        """Returns for each tensor which of the values are its own: the first of them."""
        found, at = [0] * len(self.tensors), 0
        for group in self.groups:
            for each in group:
                found[each] = at
                at += 1 + 2 * self.tensors[each].dim()
        return found

    def _begin(self, at: int) -> Any:
        each = self.tensors[at]
        return each.storage_offset() if type(each) in _PLAIN else 0

    def flat(self) -> tuple[Tensor, ...]:
        """Returns the captures as kernels read them: of a dtype that they have."""
        return tuple(_readable(self._span(group)) for group in self.groups)

    def _span(self, group: list[int]) -> Tensor:
        """Returns the memory from the first to the last element of a group."""
        first = self.tensors[group[0]]
        if len(group) == 1 and first.is_contiguous():
            return first.reshape(-1)
        begin = min(self._begin(at) for at in group)
        end = max(self._begin(at) + 1 + sum((n - 1) * stride for n, stride in
                                            zip(self.tensors[at].shape, self.tensors[at].stride()))
                  for at in group)
        return first.detach().as_strided((end - begin,), (1,), begin)


def _readable(flat: Tensor) -> Tensor:
    if flat.dtype == torch.float64:
        return flat.view(torch.int64)  # kernels read its bits
    if flat.dtype not in _READABLE:
        count("cast a capture")
        return flat.to(torch.int32)
    return flat
