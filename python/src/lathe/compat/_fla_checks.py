# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""What the functions of lathe.compat.fla check and convert before they call a kernel."""
from __future__ import annotations

import warnings
from typing import Any, Mapping

import torch
from torch import Tensor

from lathe._errors import Unsupported
from lathe.torch._calls import count
from lathe.torch._tensors import dense

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_WIDEST = 256


def unknown(function: str, keywords: Mapping[str, Any]) -> TypeError:
    """Returns the error for keywords that a function does not have."""
    return TypeError(f"{function}() got an unexpected keyword argument '{next(iter(keywords))}'")


def no_context(cp_context: Any) -> None:
    """Refuses a sequence that is split over ranks."""
    if cp_context is not None:
        raise Unsupported(f"cp_context is {cp_context!r}; allowed is None: sequences that are "
                          "split over ranks are not taken here, call it without on one rank")


def state_layout(state_v_first: bool, keywords: dict[str, Any]) -> bool:
    """Returns state_v_first; takes its old name out of the keywords, with a warning."""
    if "transpose_state_layout" not in keywords:
        return state_v_first
    if state_v_first:
        raise ValueError("state_v_first and transpose_state_layout are both given; the second is "
                         "the first's old name")
    warnings.warn("transpose_state_layout is deprecated; its name is state_v_first",
                  DeprecationWarning, stacklevel=3)
    return bool(keywords.pop("transpose_state_layout"))


def packed_lengths(q: Tensor, initial_state: Tensor | None, cu_seqlens: Tensor) -> None:
    """Checks what has to agree with the offsets of packed sequences; their values are not read."""
    if q.shape[0] != 1:
        raise ValueError(f"the batch is {q.shape[0]}; with cu_seqlens it must be 1: flatten the "
                         "sequences into one row")
    count_of = cu_seqlens.shape[0] - 1
    if initial_state is not None and initial_state.shape[0] != count_of:
        raise ValueError(f"initial_state has {initial_state.shape[0]} states, but cu_seqlens has "
                         f"{count_of} sequences; there must be one for each")


def refusal(q: Tensor, v: Tensor, beta: Tensor, lower_bound: float | None) -> str | None:
    """Returns why no kernel of KDA takes such tensors although the peer does; None: one takes them.

    lower_bound: None unless it is used.
    """
    if q.dtype not in FLOATS:
        return (f"q has dtype {str(q.dtype)[6:]}; allowed are float32, float16 and bfloat16: cast "
                "q, k and v")
    for name, tensor in (("K, the width of q and k,", q), ("V, the width of v,", v)):
        width = tensor.shape[-1]
        if width % 4 or not 8 <= width <= _WIDEST:
            return (f"{name} is {width}; allowed are multiples of 4 from 8 to {_WIDEST}: pad to "
                    "one with zeros, or split the values over heads")
    if beta.dim() == v.dim():
        return (f"beta has shape {tuple(beta.shape)}, one for each channel; allowed is [B, T, HV]: "
                "give one for each head")
    if lower_bound is not None and not -5 <= lower_bound < 0:
        return (f"lower_bound is {lower_bound}; allowed is -5 <= lower_bound < 0: give the decay "
                "itself as g, without use_gate_in_kernel")
    return None


def flat_float(tensor: Tensor | None) -> Tensor | None:
    """Returns a gate's parameter as kernels take it: float32 in one dimension."""
    if tensor is None:
        return None
    if tensor.dtype is not torch.float32:
        count("cast to float32")
        tensor = tensor.float()
    tensor = dense(tensor)
    assert tensor is not None
    return tensor if tensor.dim() == 1 else tensor.view(-1)
