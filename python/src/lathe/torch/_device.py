# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Where tensors of torch are computed on: a GPU's context, or the simulator for CPU tensors."""
from __future__ import annotations

import os
from typing import Callable, Sequence

import torch

from lathe._errors import InvalidArgument, NoDevice
from lathe._objects import Context, context

_simulated = False
forgetters: list[Callable[[], None]] = []  # what to call when CPU tensors become legal or illegal


def use_simulator(on: bool = True) -> None:
    """Lets CPU tensors be computed by the simulator: slow, exact, and on any machine.

    LATHE_DEVICE=sim in the environment does the same. Tensors on a GPU stay there.
    """
    global _simulated
    # Once the simulator is loaded, torch might take it for a GPU: it has to look for one first.
    torch.cuda.is_available()
    _simulated = on
    for forget in forgetters:
        forget()


def simulated() -> bool:
    """Returns true if CPU tensors are computed by the simulator."""
    return _simulated or os.environ.get("LATHE_DEVICE") == "sim"


def device_of(names: Sequence[str], tensors: Sequence[torch.Tensor | None]) -> torch.device:
    """Returns the device that all tensors are on. InvalidArgument names two that are apart."""
    first = next(name for name, tensor in zip(names, tensors) if tensor is not None)
    device = next(tensor for tensor in tensors if tensor is not None).device
    for name, tensor in zip(names, tensors):
        if tensor is not None and tensor.device != device:
            raise InvalidArgument(f"{name} is on {tensor.device}, but {first} is on {device}; all "
                                  "tensors must be on one device")
    return device


def context_of(names: Sequence[str], tensors: Sequence[torch.Tensor | None]) -> Context:
    """Returns the context of the device that all tensors are on.

    InvalidArgument names two that are apart; NoDevice says what CPU tensors need.
    """
    device = device_of(names, tensors)
    first = next(name for name, tensor in zip(names, tensors) if tensor is not None)
    if device.type == "cuda":
        return context("cuda", device.index or 0)
    if device.type != "cpu":
        raise NoDevice(f"{first} is on {device}; allowed are cuda, and cpu with the simulator")
    if not simulated():
        raise NoDevice(f"{first} is on the CPU; move it to a GPU, or call "
                       "lathe.torch.use_simulator() to compute it on the simulator")
    return context("sim")
