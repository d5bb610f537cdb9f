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
    if beta.dim() == v.dim() == 4:
        return (f"beta has shape {tuple(beta.shape)}, one for each channel; allowed is [B, T, HV]: "
                "give one for each head")
    if lower_bound is not None and not -5 <= lower_bound < 0:
        return (f"lower_bound is {lower_bound}; allowed is -5 <= lower_bound < 0: give the decay "
                "itself as g, without use_gate_in_kernel")
    return None


def check_negative(negative: bool, sigmoid: bool) -> None:
    """Raises ValueError for allow_neg_eigval without the sigmoid that it changes."""
    if negative and not sigmoid:
        raise ValueError("allow_neg_eigval is True; it needs use_beta_sigmoid_in_kernel=True")


def check_gate(lower_bound: float | None, safe_gate: bool, A_log: Tensor | None) -> None:
    """Raises ValueError unless the gate in the kernel has the parameters that it needs."""
    if lower_bound is not None and -5 <= lower_bound < 0:
        return
    if safe_gate:
        raise ValueError(f"lower_bound is {lower_bound}; safe_gate with use_gate_in_kernel needs "
                         "-5 <= lower_bound < 0")
    if A_log is None and lower_bound is None:
        raise ValueError("A_log is None; use_gate_in_kernel without lower_bound needs it")


def check_chunks(chunk_size: int, states: bool, keeps: bool) -> None:
    """Raises what is wrong with the chunks, whose states may be asked for."""
    if chunk_size not in (32, 64):
        raise ValueError(f"`chunk_size` must be either 32 or 64, but it is {chunk_size}")
    if states:
        assert torch.is_inference_mode_enabled(), \
            "return_intermediate_states is True; it needs torch.inference_mode()"
        assert not keeps, \
            "return_intermediate_states and disable_recompute are both True; one can be"


def check_sequences(cu_seqlens: Tensor | None, most: int | None) -> None:
    """Asserts that there are as many sequences as the graph of a call was made for."""
    if most is not None and cu_seqlens is not None:
        found = cu_seqlens.shape[0] - 1
        assert found == most, f"cu_seqlens has {found} sequences; max_num_seqs is {most}: pad it " \
                              "with empty ones"


def check_state_in_place(initial_state: Tensor | None, in_place: bool, slots: Tensor | None
                         ) -> None:
    """Raises what is wrong with a state, or a pool of states in slots, that a call changes."""
    if not in_place and slots is not None:
        raise Unsupported("inplace_final_state is False and ssm_state_indices are given; allowed "
                          "is True: the pool is changed in place, copy it before if it is needed")
    if in_place:
        assert initial_state is not None, "initial_state is None; inplace_final_state needs it"
        if initial_state.dtype is not torch.float32:
            raise Unsupported(f"initial_state has dtype {str(initial_state.dtype)[6:]} and is "
                              "changed in place; allowed is float32: cast it, or give "
                              "inplace_final_state=False")


def flat_float(tensor: Tensor | None) -> Tensor | None:
    """Returns a gate's parameter as kernels take it: float32 in one dimension."""
    if tensor is None:
        return None
    if tensor.dtype is not torch.float32:
        count("cast to float32")
        tensor = tensor.float()
    return tensor if tensor.dim() == 1 else dense(tensor).view(-1)


# ---- after a call has failed ---------------------------------------------------------------------
# The library checks all of this at every call. The peer's checks are made after it has refused one,
# because they decide which class of errors is raised and would cost time before.


def explain_packed(q: Tensor, initial_state: Tensor | None, cu_seqlens: Tensor | None) -> None:
    """Raises what is wrong with packed sequences; their offsets are not read."""
    if cu_seqlens is None or cu_seqlens.dim() != 1 or cu_seqlens.shape[0] == 0:
        return  # the library's words fit
    if q.shape[0] != 1:
        raise ValueError(f"the batch is {q.shape[0]}; with cu_seqlens it must be 1: flatten the "
                         "sequences into one row")
    found = cu_seqlens.shape[0] - 1
    if initial_state is not None and initial_state.shape[0] != found:
        raise ValueError(f"initial_state has {initial_state.shape[0]} states, but cu_seqlens has "
                         f"{found} sequences; there must be one for each")


def explain_unsupported(q: Tensor, v: Tensor, beta: Tensor, lower_bound: float | None) -> None:
    """Raises Unsupported for what the peer takes and no kernel here does."""
    reason = refusal(q, v, beta, lower_bound)
    if reason is not None:
        raise Unsupported(reason)


def explain_kda(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor,
                initial_state: Tensor | None, cu_seqlens: Tensor | None,
                lower_bound: float | None) -> None:
    """Raises what the peer says of a call of chunk_kda; nothing if it is content with it."""
    explain_packed(q, initial_state, cu_seqlens)
    if initial_state is not None:
        assert initial_state.dtype is torch.float32, \
            f"initial_state has dtype {initial_state.dtype}; it must be float32"
    if q.dim() != 4 or v.dim() != 4:
        return  # the library's words fit
    batch, tokens, heads, width = q.shape
    value_heads = v.shape[2]
    assert q.shape == k.shape, f"k has shape {tuple(k.shape)}; it must be q's, {tuple(q.shape)}"
    assert width <= _WIDEST, f"K, the width of q and k, is {width}; it must be {_WIDEST} at most"
    assert heads > 0, "q has 0 heads; there must be one or more"
    assert value_heads % heads == 0, \
        f"v has {value_heads} heads; they must be a multiple of q's, {heads}"
    assert g.shape == (batch, tokens, value_heads, width), \
        f"g has shape {tuple(g.shape)}; it must be {(batch, tokens, value_heads, width)}"
    assert beta.shape == (batch, tokens, value_heads), \
        f"beta has shape {tuple(beta.shape)}; it must be {(batch, tokens, value_heads)}"
    explain_unsupported(q, v, beta, lower_bound)
