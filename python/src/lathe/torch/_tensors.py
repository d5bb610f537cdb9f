# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Tensors as kernels take them: rows are contiguous and no two elements share a place."""
from __future__ import annotations

from typing import Sequence

import torch
from torch import Tensor

from lathe.torch._calls import count


def wants_gradient(tensors: Sequence[Tensor | None]) -> bool:
    """Returns true if autograd has to know of a call on these tensors."""
    if torch.is_grad_enabled():
        for each in tensors:
            if each is not None and each.requires_grad:
                return True
    return False


def usable(tensor: Tensor) -> Tensor:
    """Returns the tensor, or a contiguous copy if its rows are not contiguous or it is expanded."""
    if tensor.is_contiguous():
        return tensor
    overlaps = any(stride == 0 and extent > 1
                   for stride, extent in zip(tensor.stride(), tensor.shape))
    if tensor.stride(-1) == 1 and not overlaps:
        return tensor
    count("copied to contiguous rows")
    return tensor.contiguous()


def dense(tensor: Tensor | None) -> Tensor | None:
    """Returns the tensor, or a contiguous copy."""
    if tensor is None or tensor.is_contiguous():
        return tensor
    count("copied to contiguous rows")
    return tensor.contiguous()
