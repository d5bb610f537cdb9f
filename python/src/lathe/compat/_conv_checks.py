# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""What the causal convolutions by the peers' names refuse before torch or a kernel sees it.

The kernels check what they are given; here is what torch, on the way to them, would stretch, cast
or refuse in words of its own. Values on the device are not read.
"""
from __future__ import annotations

from typing import Any, Sequence

import torch
from torch import Tensor

from lathe._errors import InvalidArgument

_INTEGERS = (torch.int32, torch.int64)


def check_tensors(**given: Any) -> None:
    """Raises InvalidArgument for an argument that is neither None nor a tensor of torch."""
    for name, value in given.items():
        if value is not None and not isinstance(value, Tensor):
            kind = f"{type(value).__module__}.{type(value).__name__}".removeprefix("builtins.")
            raise InvalidArgument(f"{name} is a {kind}; allowed is a tensor of torch: "
                                  "torch.as_tensor makes a tensor of it")


def check_shape(name: str, tensor: Tensor, letters: str, extents: Sequence[int | None],
                remedy: str) -> None:
    """Raises InvalidArgument unless a tensor has these extents, where None is any."""
    found = tensor.shape
    if found == extents or len(found) == len(extents) and all(
            wanted is None or each == wanted for each, wanted in zip(found, extents)):
        return
    known = ", ".join("any" if each is None else str(each) for each in extents)
    raise InvalidArgument(f"{name} has shape {list(tensor.shape)}; allowed is {letters}, here "
                          f"[{known}]: {remedy}")


def check_integers(name: str, tensor: Tensor, letters: str, extents: Sequence[int | None],
                   remedy: str) -> None:
    """Raises InvalidArgument unless a tensor has these extents and holds indices or counts."""
    check_shape(name, tensor, letters, extents, remedy)
    if tensor.dtype not in _INTEGERS:
        raise InvalidArgument(f"{name} has dtype {str(tensor.dtype)[6:]}; allowed are int32 and "
                              "int64: cast it")


def check_offsets(name: str, tensor: Tensor) -> None:
    """Raises InvalidArgument unless a tensor can be the offsets of sequences."""
    check_integers(name, tensor, "[N + 1]", (None,), "give the sequences' offsets")
    if tensor.shape[0] == 0:
        raise InvalidArgument(f"{name} is empty; allowed are N + 1 offsets of N sequences: give 0 "
                              "for none")


def check_dtype(name: str, tensor: Tensor, other: str, wanted: torch.dtype) -> None:
    """Raises InvalidArgument unless a tensor has the dtype that another one has."""
    if tensor.dtype is not wanted:
        raise InvalidArgument(f"{name} has dtype {str(tensor.dtype)[6:]}; allowed is that of "
                              f"{other}, {str(wanted)[6:]}: cast one of them")


def check_filter(x: Tensor, weight: Tensor, dims: Sequence[int], place: int, letters: str) -> None:
    """Raises InvalidArgument unless x, in one of these numbers of dimensions, has weight's channels.

    place: which of x's dimensions the channels are.
    """
    if weight.dim() != 2:
        raise InvalidArgument(f"weight has shape {list(weight.shape)}; allowed is [D, W]: squeeze "
                              "the dimension between them")
    if x.dim() not in dims or x.shape[place] != weight.shape[0]:
        raise InvalidArgument(f"x has shape {list(x.shape)}; allowed is {letters} with weight's "
                              f"{weight.shape[0]} channels D: transpose x, or slice it")


def check_pool(name: str, pool: Tensor, channels: int, columns: int) -> None:
    """Raises InvalidArgument unless a pool is [S, D, L] with so many channels and columns."""
    shape = pool.shape
    if len(shape) != 3 or shape[1] != channels:
        check_shape(name, pool, "[S, D, L]", (None, channels, None),
                    "transpose it, or make it anew")
    if shape[2] < columns:
        raise InvalidArgument(f"{name} has {pool.shape[2]} columns; allowed are {columns} or more: "
                              "make it with more")
