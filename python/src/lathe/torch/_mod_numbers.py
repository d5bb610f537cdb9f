# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The tensor from which kernels read the numbers of a mod that vary from call to call.

Such numbers are no options, which are part of a plan's key: each value would have a plan. Ints
are exact, and floats are the bits of doubles.
"""
from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor

from lathe.torch._calls import traced

_kept: OrderedDict[tuple[Any, ...], Tensor] = OrderedDict()
_MOST = 256


def numbers_on(device: torch.device, values: tuple[Any, ...]) -> Tensor:
    """Returns an int64 tensor of the values, of which a float is its bits.

    It is kept for the next call with these values on this stream. Each value is written by a kernel
    of its own, not copied from the host: a copy waits for the device, and a CUDA graph cannot have
    it. While a graph is captured nothing is kept, since the tensor lies in the graph's memory.
    """
    if traced():
        return _in_a_graph(device, values)
    if device.type != "cuda":
        stream: Any = None
    elif torch.cuda.is_current_stream_capturing():
        return _made(device, values)
    else:  # another stream would not wait for the writes
        stream = torch.cuda.current_stream(device).cuda_stream
    key = (device, stream, values)
    found = _kept.get(key)
    if found is None:
        found = _kept[key] = _made(device, values)
        if len(_kept) > _MOST:
            _kept.popitem(last=False)
    else:
        _kept.move_to_end(key)
    return found


def _made(device: torch.device, values: tuple[int, ...]) -> Tensor:
    if device.type == "cpu":
        return torch.tensor(values, dtype=torch.int64)
    found = torch.empty(len(values), dtype=torch.int64, device=device)
    for at, value in enumerate(values):
        found[at].fill_(value)
    return found


def _in_a_graph(device: torch.device, values: tuple[Any, ...]) -> Tensor:
    """Returns the tensor as operators of a graph of torch.compile, some of whose numbers are
    symbols."""
    parts = []
    for each in values:
        # By a name of its own, since torch's versions type a product with a SymFloat differently.
        symbolic_float = isinstance(each, torch.SymFloat)
        if symbolic_float:
            # A product, because torch has a tensor's form of it; the symbol of another operator
            # becomes a literal of the graph.
            one = torch.ones(1, dtype=torch.float64, device=device)
            product: Tensor = one * each
            parts.append(product.view(torch.int64))
        else:
            parts.append(torch.full((1,), each, dtype=torch.int64, device=device))
    return torch.cat(parts)

