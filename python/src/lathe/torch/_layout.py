# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Tensors as kernels take them, and the copies that this takes; each copy is counted.

Rows are contiguous, no two elements share a place, and what lies in memory are the values: a tensor
with torch's negative bit (conj().imag has it) is read by torch as the negative of its memory.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Sequence, overload

import torch
from torch import Tensor

from lathe._errors import Unsupported
from lathe.torch._statistics import count, is_compiling

if TYPE_CHECKING:
    from lathe.torch._calls import Call

# Before 2.10 torch may end the trace of a backward that asks how a gradient lies. Operators lay out
# what they are given (_traced.py), so a trace can leave it to them.
_LEFT_TO_OPERATORS = tuple(int(each) for each in torch.__version__.split(".")[:2]) < (2, 10)


@overload
def usable(tensor: Tensor) -> Tensor: ...
@overload
def usable(tensor: None) -> None: ...
@overload
def usable(tensor: Tensor | None) -> Tensor | None: ...
def usable(tensor: Tensor | None) -> Tensor | None:
    """Returns the tensor, or a contiguous copy if its rows are not contiguous or it is expanded."""
    if tensor is None or _LEFT_TO_OPERATORS and is_compiling():
        return tensor
    tensor = _resolved(tensor)
    if tensor.is_contiguous():
        return tensor
    overlaps = any(stride == 0 and extent > 1
                   for stride, extent in zip(tensor.stride(), tensor.shape))
    if tensor.stride(-1) == 1 and not overlaps:
        return tensor
    count("copied to contiguous rows")
    return tensor.contiguous()


@overload
def dense(tensor: Tensor) -> Tensor: ...
@overload
def dense(tensor: None) -> None: ...
@overload
def dense(tensor: Tensor | None) -> Tensor | None: ...
def dense(tensor: Tensor | None) -> Tensor | None:
    """Returns the tensor, or a contiguous copy."""
    if tensor is None or _LEFT_TO_OPERATORS and is_compiling():
        return tensor
    tensor = _resolved(tensor)
    if tensor.is_contiguous():
        return tensor
    count("copied to contiguous rows")
    return tensor.contiguous()


def aligned_copy(tensor: Tensor) -> Tensor:
    """Returns a copy at an address and with strides that every kernel takes."""
    count("copied to an aligned place")
    return tensor.clone(memory_format=torch.contiguous_format)


def _resolved(tensor: Tensor) -> Tensor:
    """Returns the tensor, or a copy without the negative bit; torch.compile's graphs have none."""
    if is_compiling() or not tensor.is_neg():
        return tensor
    count("resolved a negative view")
    return tensor.resolve_neg()


def laid(call: Call, tensors: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
    """Returns the inputs of a call as its kernels take them; those changed in place stay."""
    kept = [i for i, _ in call.may_change]
    refuse_negated([call.inputs[i] for i in kept], [tensors[i] for i in kept])
    return tuple(each if i in kept else usable(each) if i in call.rows else dense(each)
                 for i, each in enumerate(tensors))


def refuse_negated(names: Sequence[str], tensors: Sequence[Tensor | None]) -> None:
    """Raises Unsupported if a tensor that a call writes has the negative bit."""
    if is_compiling():
        return
    for name, tensor in zip(names, tensors):
        if tensor is not None and tensor.is_neg():
            raise Unsupported(f"{name} is written in place and is a negative view (is_neg); "
                              "allowed is a tensor whose memory holds its values: give "
                              "resolve_neg() of it")


def lies_nowhere(tensors: Sequence[Tensor | None]) -> bool:
    """Returns true if there is a tensor on the meta device, which has a shape and no values."""
    return any(each is not None and each.is_meta for each in tensors)
