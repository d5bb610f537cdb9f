# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Kimi Delta Attention as servers call it: states [S,HV,V,K] in slots of a pool, raw gates, norms
in the kernel. lathe.compat.vllm_kda and lathe.compat.sglang are made of these.

A slot that is null, negative or none of the pool's is padding; the kernels see to it, so no index
of a caller reaches torch.
"""
from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor

from lathe._errors import InvalidArgument
from lathe.compat._conv_checks import check_shape
from lathe.compat._fla_checks import flat_float
from lathe.torch import kda, kda_decode, kda_recurrent
from lathe.torch._calls import count

NULL_BLOCK = 0  # of vLLM: no sequence ever has this slot


def gate_options(lower_bound: float | None, scale: float | None, norms: bool = True,
                 null_slot: int = NULL_BLOCK) -> dict[str, Any]:
    """Returns options for raw gates and logits of beta, and states with the values first."""
    options: dict[str, Any] = {"use_gate_in_kernel": 1, "use_beta_sigmoid_in_kernel": 1,
                               "state_v_first": 1, "null_slot": null_slot}
    if norms:
        options["use_qk_l2norm_in_kernel"] = 1
    if lower_bound is not None:
        options["lower_bound"] = float(lower_bound)
    if scale is not None:
        options["scale"] = float(scale)
    return options


def same_dtype(counts: Tensor | None, indices: Tensor) -> Tensor | None:
    """Returns accepted counts in the dtype of the slots, which the kernel wants."""
    if counts is None or counts.dtype is indices.dtype:
        return counts
    count("num_accepted_tokens cast to the dtype of the slots")
    return counts.to(indices.dtype)


def recurrent(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, A_log: Tensor | None,
              dt_bias: Tensor | None, pool: Tensor, indices: Tensor, options: dict[str, Any],
              cu_seqlens: Tensor | None = None, accepted: Tensor | None = None,
              out: Tensor | None = None) -> Tensor:
    """Returns o [B,T,HV,V], token by token over a pool, which is changed; `out` is written."""
    direct = out is not None and takes(out, q)
    o, _ = kda_recurrent(q, k, v, g, beta, A_log=flat_float(A_log), dt_bias=flat_float(dt_bias),
                         cu_seqlens=cu_seqlens, state_pool=detached(pool),
                         state_indices=indices, out=out if direct else None,
                         num_accepted_tokens=same_dtype(accepted, indices), **options)
    return o if out is None or direct else copied(o, out)


def detached(pool: Tensor) -> Tensor:
    """Returns a pool that autograd does not follow."""
    return pool.detach() if pool.requires_grad else pool


def takes(out: Tensor, q: Tensor) -> bool:
    """Returns true if a kernel can write its result into a tensor that the caller has."""
    if torch.compiler.is_compiling():
        return False  # a trace does not know where a tensor lies
    *strides, last = out.stride()
    places = out.storage_offset()
    for each in strides:
        places |= each  # a power of two divides it if it divides all of them
    return bool(out.dtype is q.dtype and last == 1 and places * out.element_size() % 16 == 0)


def floated(states: Tensor) -> Tensor:
    """Returns states in float32, as prefills without a pool take them."""
    if states.dtype is torch.float32:
        return states
    count("cast to float32")
    return states.float()


def copied(source: Tensor, target: Tensor) -> Tensor:
    """Returns the target, with the source's values."""
    count("result copied into out")
    return target.detach().copy_(source)


def parts(mixed: Tensor, heads: int, keys: int, value_heads: int, values: int
          ) -> tuple[Tensor, Tensor, Tensor]:
    """Returns q, k [B,1,H,K] and v [B,1,HV,V]: views of rows [B, 2 H K + HV V]."""
    widths = [heads * keys, heads * keys, value_heads * values]
    check_shape("mixed_qkv", mixed, "[B, 2 H K + HV V]", (None, sum(widths)),
                "give rows of q, k and v beside each other")
    q, k, v = mixed.split_with_sizes(widths, 1)
    rows = mixed.shape[0]
    return (q.view(rows, 1, heads, keys), k.view(rows, 1, heads, keys),
            v.view(rows, 1, value_heads, values))


def prefill(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, A_log: Tensor | None,
            dt_bias: Tensor | None, cu_seqlens: Tensor, pool: Tensor, indices: Tensor,
            options: dict[str, Any], out: Tensor | None = None, **slots: Any) -> Tensor:
    """Returns o [1,T,HV,V] of packed sequences over a pool, which is changed; `out` is written.

    slots: source_indices, has_initial_state and checkpoints of lathe.torch.kda.
    """
    direct = out is not None and takes(out, q)
    o, _, _ = kda(q, k, v, g, beta, A_log=flat_float(A_log), dt_bias=flat_float(dt_bias),
                  cu_seqlens=cu_seqlens, state_pool=detached(pool), state_indices=indices,
                  out=out if direct else None, **slots, **options)
    return o if out is None or direct else copied(o, out)


# ---- a decoding layer ----------------------------------------------------------------------------

_filters: dict[int, tuple[weakref.ref[Tensor], int, Tensor]] = {}


def filter_of(weight: Tensor) -> Tensor:
    """Returns taps [3 D, W] of a layer's weight [3, W, D]: made once, and again if it changes."""
    if weight.dim() == 2:
        return weight
    check_shape("weight", weight, "[3, W, D]", (None, None, None), "give the taps of q, k and v")
    if torch.compiler.is_compiling():
        return weight.transpose(1, 2).flatten(0, 1).contiguous()
    kept, version = _filters.get(id(weight)), 0 if weight.is_inference() else weight._version
    if kept is None or kept[0]() is not weight or kept[1] != version:
        count("transposed a filter")
        for key in [key for key, each in _filters.items() if each[0]() is None]:
            del _filters[key]
        made = weight.detach().transpose(1, 2).flatten(0, 1).contiguous()
        kept = _filters[id(weight)] = (weakref.ref(weight), version, made)
    return kept[2]


def decoded_layer(x: Tensor, weight: Tensor, bias: Tensor | None, conv_state: Tensor, g: Tensor,
                  beta: Tensor, A_log: Tensor, dt_bias: Tensor | None, indices: Tensor,
                  state: Tensor, out: Tensor | None, gate: Tensor | None, norm: Tensor | None,
                  options: dict[str, Any]) -> Tensor:
    """Returns o [B,HV,V] of a layer's step in one launch; both pools are changed."""
    if conv_state.shape[0] != state.shape[0]:
        raise InvalidArgument(f"conv_state has {conv_state.shape[0]} slots and state "
                              f"{state.shape[0]}; allowed are as many: a sequence has one slot")
    direct = out is not None and takes(out, x)
    o = kda_decode(x, filter_of(weight), detached(conv_state), g, beta, detached(state), indices,
                   conv_bias=bias, A_log=flat_float(A_log),
                   dt_bias=flat_float(dt_bias), output_gate=gate, norm_weight=norm,
                   out=out if direct else None, **options)
    return o if out is None or direct else copied(o, out)
