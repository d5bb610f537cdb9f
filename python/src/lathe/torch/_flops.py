# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Floating point operations of lathe's operators, for torch.utils.flop_counter.FlopCounterMode.

The formulas are those of Plan.estimate: a multiplication and an addition are two operations, and of
attention the pairs count that causal and windows keep. What depends on values (lengths of packed
sequences and of caches) is read where it can be; else it is taken to be as long as it can be. A
mask_mod and entries of a list that are skipped count as if they kept every pair.
"""
from __future__ import annotations

import functools
from typing import Any, Callable, Mapping

import torch
from torch import Tensor, sym_max, sym_min

from lathe.torch._calls import Call, count, follow
from lathe.torch._late import after_import
from lathe.torch._traced import TracedOperator, options_of_text

Given = Mapping[str, Any]  # the tensors by name; in an output's place its shape counts
Options = Mapping[str, Any]


def _values(tensor: Tensor) -> list[int] | None:
    """Returns a tensor's values; None if it has none, or where they cannot be waited for."""
    from torch._subclasses.fake_tensor import FakeTensor  # torch has it by now

    if isinstance(tensor, FakeTensor) or tensor.is_meta:
        return None
    if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
        return None
    count("lengths read on the host")
    return [int(each) for each in tensor.tolist()]


def _lengths(offsets: Tensor, tokens: Any) -> list[Any]:
    """Returns the lengths of packed sequences, or one as long as all of them."""
    values = _values(offsets)
    if values is None:
        return [tokens]
    return [max(0, end - begin) for begin, end in zip(values, values[1:])]


# ---- attention -----------------------------------------------------------------------------------


def _ramp(rows: Any, most: Any) -> Any:
    """Returns the sum of min(i, most) over i from 0 to rows - 1; 0 if there are no rows."""
    inside = sym_min(sym_max(rows, 0), most)
    return inside * (inside - 1) // 2 + most * sym_max(rows - most, 0)


def _kept_pairs(queries: Any, keys: Any, options: Options) -> Any:
    """Returns the pairs of a row and a key that causal and windows keep.

    The last row stands at the last key. Row i sees keys from i + begin up to i + end.
    """
    left = options.get("window_left", -1)
    right = 0 if options.get("causal") else options.get("window_right", -1)
    ahead = keys - queries
    pairs = queries * keys
    if right >= 0:
        end = ahead + right + 1
        pairs = _ramp(queries + end, keys) - _ramp(end, keys)
    if left >= 0:
        begin = ahead - left
        pairs = pairs - (_ramp(queries + begin, keys) - _ramp(begin, keys))
    return pairs


def _attention_pairs(t: Given, options: Options) -> Any:
    q, k = t["q"], t["k"]
    if q.dim() == 4:
        return q.shape[0] * _kept_pairs(q.shape[1], k.shape[1], options)
    queries = _lengths(t["cu_seqlens_q"], q.shape[0])
    keys = _lengths(t["cu_seqlens_k"], k.shape[0])
    return sum(_kept_pairs(*each, options) for each in zip(queries, keys))


def _attention(t: Given, options: Options) -> Any:
    width, values = t["q"].shape[-1], t["v"].shape[-1]
    return 2 * (width + values) * t["q"].shape[-2] * _attention_pairs(t, options)


def _attention_bwd(t: Given, options: Options) -> Any:
    """Counts five products: scores and dP, then dq, dk and dv."""
    width, values = t["q"].shape[-1], t["v"].shape[-1]
    return 2 * (3 * width + 2 * values) * t["q"].shape[-2] * _attention_pairs(t, options)


def _decode(t: Given, options: Options) -> Any:
    q, cache = t["q"], t["k_cache"]
    values = t["v_cache"].shape[-1] if t["v_cache"] is not None else 512
    sequences, most = t["block_table"].shape[0], t["block_table"].shape[1] * cache.shape[1]
    packed = t["cu_seqlens_q"] is not None
    rows = _lengths(t["cu_seqlens_q"], q.shape[0]) if packed else [q.shape[1]] * sequences
    lengths = _values(t["cache_seqlens"])
    if lengths is None or len(rows) != len(lengths):
        pairs = sum(_kept_pairs(each, most, options) for each in rows)
    else:
        new = t["k_new"] is not None
        pairs = sum(_kept_pairs(n, min(max(each, 0) + (n if new else 0), most), options)
                    for n, each in zip(rows, lengths))
    return 2 * (q.shape[-1] + values) * q.shape[-2] * pairs


def _sparse_pairs(t: Given, options: Options) -> Any:
    """Returns the pairs of a query and a listed key; all heads of a group share a list."""
    rows = t["q"].numel() // t["q"].shape[-1]
    extra = t["indices_extra"].shape[-1] if t["indices_extra"] is not None else 0
    return rows * (t["indices"].shape[-1] * options.get("block_size", 1) + extra)


def _sparse_widths(t: Given) -> tuple[Any, Any]:
    rope = t["q_rope"].shape[-1] if t["q_rope"] is not None else 0
    return t["q"].shape[-1] + rope, t["out"].shape[-1]


def _sparse(t: Given, options: Options) -> Any:
    width, values = _sparse_widths(t)
    return 2 * (width + values) * _sparse_pairs(t, options)


def _sparse_bwd(t: Given, options: Options) -> Any:
    width, values = _sparse_widths(t)
    return 2 * (3 * width + 2 * values) * _sparse_pairs(t, options)


# ---- Kimi Delta Attention, convolution -----------------------------------------------------------


def _state_elements(t: Given) -> Any:
    """Returns the elements of a state, K by V, summed over tokens and heads."""
    return t["v"].numel() * t["q"].shape[-1]


def _kda(t: Given, options: Options) -> Any:
    """Counts three products of a token with the state: what it holds, its update and o."""
    return 6 * _state_elements(t)


def _kda_bwd(t: Given, options: Options) -> Any:
    """Counts three products forth, three back, and two to walk again what was not saved."""
    return (12 if options.get("disable_recompute") else 16) * _state_elements(t)


def _kda_recurrent(t: Given, options: Options) -> Any:
    """Counts the decay, two sums over K, and the update."""
    return 7 * _state_elements(t)


def _kda_decode(t: Given, options: Options) -> Any:
    """Counts the taps, and for each token what a recurrence of it does to a state."""
    states = t["state_pool"].shape[1] * t["state_pool"].shape[2] * t["state_pool"].shape[3]
    tokens = t["qkv"].numel() // t["qkv"].shape[-1]
    return 2 * t["qkv"].numel() * t["conv_weight"].shape[-1] + 7 * tokens * states


def _conv(t: Given, options: Options) -> Any:
    return 2 * t["x"].numel() * t["weight"].shape[-1]


def _conv_bwd(t: Given, options: Options) -> Any:
    """Counts dx and dweight, and with silu the filter's result again."""
    return _conv(t, options) * (3 if options.get("activation") == "silu" else 2)


_FORMULAS: dict[tuple[str, bool], Callable[[Given, Options], Any]] = {
    ("flash_attention", False): _attention, ("flash_attention", True): _attention_bwd,
    ("flash_attention_decode", False): _decode,
    ("sparse_flash_attention", False): _sparse, ("sparse_flash_attention", True): _sparse_bwd,
    ("kda", False): _kda, ("kda", True): _kda_bwd, ("kda_recurrent", False): _kda_recurrent,
    ("kda_decode", False): _kda_decode,
    ("causal_conv1d", False): _conv, ("causal_conv1d", True): _conv_bwd,
    ("causal_conv1d_update", False): _conv}


def _count_one(traced: TracedOperator, formula: Callable[[Given, Options], Any], *arguments: Any,
               out_val: Any = None, **named: Any) -> Any:
    """Returns the operations of one call of torch.ops.lathe, in the form that torch asks."""
    call, schema = traced.call, traced.operator._schema
    given = {**dict.fromkeys(call.inputs),
             **dict(zip((each.name for each in schema.arguments), arguments)), **named}
    outputs = out_val if isinstance(out_val, (tuple, list)) else (out_val,)
    for i, name in enumerate(call.outputs):
        made = given[f"{name}_into"] if traced.is_into else outputs[i]
        given.setdefault(name, made)
    return formula(given, dict(options_of_text(given["options"])))


def _register(call: Call) -> None:
    from torch.utils.flop_counter import register_flop_formula

    backward = any(name[:1] == "d" and name[1:] in call.inputs for name in call.outputs)
    formula = _FORMULAS.get((call.op, backward))
    if formula is None:
        return
    for traced in call.traced.all:
        register_flop_formula(traced.operator.overloadpacket, get_raw=True)(
            functools.partial(_count_one, traced, formula))


def install() -> None:
    """Gives FlopCounterMode the formulas, once its module is imported."""
    after_import("torch.utils.flop_counter", lambda: follow(_register))
