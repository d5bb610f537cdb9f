# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""register() of lathe.compat.vllm: vLLM's modules get lathe's functions in place of their own."""
from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from typing import Any, Callable

from lathe.compat import _vllm_attention, vllm_conv, vllm_glm, vllm_kda

_Function = Callable[..., Any]
_K3 = "vllm.models.kimi_k3.nvidia.ops.third_party.kda"
_GLM = "vllm.models.glm5next.nvidia.ops.third_party.kda"
_FLA = "vllm.third_party.flash_linear_attention.ops"
_ATTENTION = (_vllm_attention.flash_attn_varlen_func, _vllm_attention.get_scheduler_metadata)
_K3_FUNCTIONS = (vllm_kda.chunk_kda_with_fused_gate, vllm_kda.fused_recurrent_kda,
                 vllm_kda.fused_recurrent_kda_packed_decode)
_GLM_FUNCTIONS = (vllm_glm.chunk_kda_with_fused_gate, vllm_glm.fused_recurrent_kda)

# The functions that modules of vLLM 0.27 to 0.33 define, by the names that these have there.
PLACES: dict[str, tuple[_Function, ...]] = {
    "vllm.vllm_flash_attn.flash_attn_interface": _ATTENTION,
    "vllm.vllm_flash_attn": _ATTENTION,
    "vllm.model_executor.layers.mamba.ops.causal_conv1d":
        (vllm_conv.causal_conv1d_fn, vllm_conv.causal_conv1d_update),
    f"{_K3}.chunk": _K3_FUNCTIONS[:1],
    f"{_K3}.fused_recurrent": _K3_FUNCTIONS[1:],
    _K3: _K3_FUNCTIONS,
    f"{_GLM}.kernels": _GLM_FUNCTIONS,
    _GLM: _GLM_FUNCTIONS,
    f"{_FLA}.kda": (vllm_kda.fused_kda_gate,),
    "vllm._custom_ops": (vllm_kda.fused_kda_decode,),
}


def _there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _replace(original: Any, ours: _Function) -> None:
    """Puts our function wherever modules of vLLM have taken the original by its name."""
    for name, module in list(sys.modules.items()):
        if not isinstance(module, types.ModuleType) or name.split(".")[0] != "vllm":
            continue
        for attribute, value in list(vars(module).items()):
            if value is original:
                setattr(module, attribute, ours)


def register() -> list[str]:
    """Makes vLLM call lathe's functions; returns the names of what was replaced.

    Modules that vLLM has imported before get them too. vLLM calls this itself, in each of its
    processes, where VLLM_PLUGINS names lathe.
    """
    found = []
    for place, functions in PLACES.items():
        if not _there(place):
            continue
        module = importlib.import_module(place)
        for ours in functions:
            original = getattr(module, ours.__name__, None)
            if original is None or original is ours:
                continue
            _replace(original, ours)
            found.append(f"{place}.{ours.__name__}")
    return found
