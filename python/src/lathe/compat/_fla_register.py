# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""lathe as a backend of flash-linear-attention 0.5 and 0.6, whose own functions then call it."""
from __future__ import annotations

import contextlib
import importlib
import inspect
import os
from typing import Any, Callable, Mapping

import torch
from torch import Tensor

from lathe._errors import Unsupported
from lathe.compat import _fla_conv, _fla_kda
from lathe.compat._fla_checks import FLOATS, refusal
from lathe.torch._calls import count, options_of
from lathe.torch._device import simulated
from lathe.torch._operator_calls import CAUSAL_CONV1D_BWD
from lathe.torch._tensors import dense, usable

_PRIORITY = 1  # fla's own backends have 3 to 5, and lower comes first; 0 is that of other devices
_SWITCH = "FLA_LATHE"  # an environment variable: 0 switches the backend off

Verdict = tuple[bool, str | None]
Check = Callable[[Mapping[str, Any]], str | None]

# ---- what a convolution of fla is made of --------------------------------------------------------
# The names are fla's, and some change nothing here: chunk_size, which was BT before 0.6.


def _conv_fwd(x: Tensor, weight: Tensor, bias: Tensor | None = None, residual: Tensor | None = None,
              initial_state: Tensor | None = None, output_final_state: bool = False,
              activation: str | None = None, cu_seqlens: Tensor | None = None,
              cu_seqlens_cpu: Tensor | None = None, chunk_indices: Tensor | None = None,
              chunk_size: int = 64, layout_fallback: bool = False, BT: int = 64
              ) -> tuple[Tensor, Tensor | None]:
    return _fla_conv.causal_conv1d(x, weight, bias, residual, initial_state, output_final_state,
                                   activation, cu_seqlens=cu_seqlens)


def _conv_gradients(x: Tensor, dy: Tensor, dht: Tensor | None, weight: Tensor | None = None,
                    bias: Tensor | None = None, residual: Tensor | None = None,
                    initial_state: Tensor | None = None, activation: str | None = None,
                    cu_seqlens: Tensor | None = None, cu_seqlens_cpu: Tensor | None = None,
                    chunk_indices: Tensor | None = None, chunk_size: int = 64,
                    layout_fallback: bool = False, BT: int = 64) -> tuple[Tensor | None, ...]:
    """Returns the gradients of x, weight, bias, residual and initial_state."""
    weight = _fla_conv.given(weight)
    options = options_of(activation=_fla_conv.activation_name(activation))
    dx, dweight, dbias, dstate = CAUSAL_CONV1D_BWD(options, *CAUSAL_CONV1D_BWD.ordered(
        x=usable(_fla_conv.flattened(x)), weight=dense(weight), bias=dense(bias),
        initial_state=dense(initial_state), cu_seqlens=dense(cu_seqlens),
        dy=usable(_fla_conv.flattened(dy)), dfinal_state=dense(dht)))
    assert dx is not None
    return dx.view(x.shape), dweight, dbias, dy if residual is not None else None, dstate


def _conv_states(x: Tensor, state_len: int, initial_state: Tensor | None = None,
                 cu_seqlens: Tensor | None = None) -> Tensor:
    count("states by a convolution with a weight of zeros")
    rows = x if x.dim() == 3 else x.unsqueeze(0)
    _, final = _fla_conv.causal_conv1d(rows, x.new_zeros(x.shape[-1], state_len), None, None,
                                       initial_state, True, cu_seqlens=cu_seqlens)
    assert final is not None
    return final


# ---- which calls are left to lathe ---------------------------------------------------------------


def _place(x: Tensor) -> str | None:
    """Returns why a tensor's device or dtype is none of lathe's; None: it is one."""
    if not (x.is_cuda and torch.version.cuda) and not (x.device.type == "cpu" and simulated()):
        return f"the tensors are on {x.device}"
    return None if x.dtype in FLOATS else f"the dtype is {x.dtype}"


def _kda_reason(call: Mapping[str, Any]) -> str | None:
    """Returns why a call of chunk_kda is not taken."""
    q, k, v = call["q"], call["k"], call["v"]
    bound = call.get("lower_bound") if call.get("use_gate_in_kernel") else None
    if call.get("cp_context") is not None:
        return "cp_context is given"
    if not q.dtype == k.dtype == v.dtype:
        return "the dtypes of q, k and v differ"
    return _place(q) or refusal(q, v, call["beta"], bound)


def _recurrent_reason(call: Mapping[str, Any]) -> str | None:
    """Returns why a call of fused_recurrent_kda_fwd is not taken."""
    state = call.get("initial_state")
    if call.get("inplace_final_state", True):
        if state is not None and state.dtype is not torch.float32:
            return "initial_state is changed in place and is not float32"
    elif call.get("ssm_state_indices") is not None:
        return "ssm_state_indices are given without inplace_final_state"
    if call.get("use_gate_in_kernel") and call.get("A_log") is None:
        if call.get("lower_bound") is None:
            return "neither A_log nor lower_bound is given"
    return _kda_reason(call)


def _conv_reason(call: Mapping[str, Any]) -> str | None:
    """Returns why a part of a convolution is not taken."""
    x, weight, bias = call["x"], call.get("weight"), call.get("bias")
    width = call["state_len"] if "state_len" in call else 0 if weight is None else weight.shape[1]
    if not 2 <= width <= 8:
        return f"the width is {width}"
    if bias is not None and weight is not None and bias.dtype is not weight.dtype:
        return "the dtypes of weight and bias differ"
    if call.get("activation") not in (None, "silu", "swish"):
        return f"the activation is {call['activation']}"
    for name in ("residual", "initial_state", "cache", "dy", "dht"):
        if call.get(name) is not None and call[name].dtype is not x.dtype:
            return f"the dtypes of x and {name} differ"
    return _place(x)


_Functions = dict[str, tuple[Callable[..., Any], Check]]
_CHUNK: _Functions = {"chunk_kda": (_fla_kda.chunk_kda, _kda_reason)}
_RECURRENT: _Functions = {
    "fused_recurrent_kda_fwd": (_fla_kda.fused_recurrent_kda_fwd, _recurrent_reason)}
_CONV: _Functions = {
    "causal_conv1d_fwd": (_conv_fwd, _conv_reason),
    "causal_conv1d_bwd": (_conv_gradients, _conv_reason),
    "causal_conv1d_update": (_fla_conv.causal_conv1d_update, _conv_reason),
    "causal_conv1d_update_states": (_conv_states, _conv_reason),
}
_KDA_KEYWORDS = {"A_log", "dt_bias", "chunk_size", "transpose_state_layout"}
_SAME_ORDER = 10  # further arguments have another order in 0.5.0


def _verifier(function: Callable[..., Any], check: Check) -> Callable[..., Verdict]:
    """Returns what fla asks before a call: (whether lathe takes it, why not)."""
    names = tuple(inspect.signature(function).parameters)
    known = {*names, *_KDA_KEYWORDS}

    def verifier(*arguments: Any, **keywords: Any) -> Verdict:
        if len(arguments) > _SAME_ORDER:
            return False, "options are given by position"
        strange = keywords.keys() - known
        if strange:
            return False, f"lathe does not know {', '.join(strange)}"
        reason = check({**dict(zip(names, arguments)), **keywords})
        return reason is None, reason

    return verifier


# ---- registration --------------------------------------------------------------------------------


def _backend(base: Any, functions: _Functions) -> Any:
    """Returns a class of fla's kind with these functions and what tells which calls they take."""
    members: dict[str, Any] = {"backend_type": "lathe", "package_name": None, "env_var": _SWITCH,
                               "default_enable": True, "priority": _PRIORITY}
    for name, (function, check) in functions.items():
        members[name] = staticmethod(function)
        members[f"{name}_verifier"] = staticmethod(_verifier(function, check))
    return type("LatheBackend", (base,), members)


def _register_entry_points(backends: Any) -> list[str]:
    """Registers with fla 0.6, where each function has backends of its own."""
    found = []
    for module, functions in (("fla.ops.kda", _CHUNK), ("fla.modules.causal_conv1d", _CONV)):
        owner = importlib.import_module(module)
        for name, (function, check) in functions.items():
            backend = _backend(backends.BaseBackend, {})
            backends.register(getattr(owner, name), backend=backend,
                              verifier=_verifier(function, check))(function)
            found.append(name)
    backends.register("kda")(_backend(backends.BaseBackend, _RECURRENT))
    return [*found, *_RECURRENT]


def _register_operations(backends: Any) -> list[str]:
    """Registers with fla 0.5, where an object has the functions of an operation."""
    found: list[str] = []
    registry = backends.BackendRegistry
    kda = dict(_CHUNK)
    recurrent = importlib.import_module("fla.ops.kda.fused_recurrent")
    if hasattr(recurrent, "dispatch"):
        kda.update(_RECURRENT)  # up to 0.5.2 this function asks no backend
    for operation, functions in (("kda", kda), ("modules", _CONV)):
        with contextlib.suppress(ImportError):
            registry.ensure_initialized(operation)
        known = registry._registries.get(operation)
        if known is not None:
            known.register(_backend(backends.BaseBackend, functions)())
            found += functions
    return found


def register() -> list[str]:
    """Makes lathe a backend of the fla that is installed; returns the functions that it may take.

    fla's own functions, and so its layers and models, then call lathe. What lathe does not compute
    is fla's as before: its log says why. FLA_LATHE=0 in the environment switches lathe off.
    """
    if os.environ.get("FLA_DISABLE_BACKEND_DISPATCH") == "1":
        raise Unsupported("FLA_DISABLE_BACKEND_DISPATCH is 1, with which fla asks no backend; "
                          "unset it before fla is imported")
    try:
        backends = importlib.import_module("fla.backends")
    except ModuleNotFoundError:
        return _register_operations(importlib.import_module("fla.ops.backends"))
    return _register_entry_points(backends)
