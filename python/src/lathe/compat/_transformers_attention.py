# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The attention function of lathe.compat.transformers: one call of a kernel for each mask there is.

Keys and values are read where the cache has them: no sequence is unpadded, and nothing waits for
the device.
"""
from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from lathe._errors import InvalidArgument, Unsupported
from lathe.compat import _kvcache
from lathe.compat._attention import attend, float_sinks, is_odd, narrowed, options_for, \
    padded, with_scale
from lathe.compat._transformers_mask import (INTERVALS_MOD, STARTS_MOD, first_place,
                                              intervals_size, kind_of, numbers_of)
from lathe.compat._transformers_positions import packed_positions
from lathe.torch._calls import Options, count
from lathe.torch._gradients import FlashAttention
from lathe.torch._operator_calls import FLASH_ATTENTION, FLASH_ATTENTION_DECODE
from lathe.torch._tensors import computed, wants_gradient

_MOST_ROWS = 16  # queries of a sequence up to which a kernel splits the keys instead

# Device text of tables. The second array has the steps of batch, head and query.
_TABLE = """\
__device__ {kind} {name}({first}int batch, int head, int q_idx, int kv_idx,
                         const Captures& captures) {{
  return {result}captures.get<0>(captures.get<1>(0) * batch + captures.get<1>(1) * head +
                         captures.get<1>(2) * q_idx + kv_idx){test};
}}
"""
_TABLE_MASK = _TABLE.format(kind="bool", name="mask_mod", first="", result="", test=" != 0.0f")
_TABLE_SCORE = _TABLE.format(kind="float", name="score_mod", first="float score, ",
                             result="score + ", test="") + """\
__device__ float score_mod_bwd(float dscore, float score, int batch, int head, int q_idx,
                               int kv_idx) {
  return dscore;
}
"""

_Captures = tuple[Tensor | None, Tensor | None]
_NONE: _Captures = (None, None)


# ---- calls -------------------------------------------------------------------------------------


def _computed(options: Options, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None,
              captures: _Captures) -> Tensor:
    """Returns out [B,Sq,H,DV] for q [B,Sq,H,D], k and v, with gradients."""
    width = v.shape[-1]
    if is_odd(q, v):
        options = with_scale(options, q.shape[-1])
        q, k, v = padded(q), padded(k), padded(v)
    first, second = captures
    tensors = FLASH_ATTENTION.ordered(q=q, k=k, v=v, sinks=sinks, capture_0=first, capture_1=second)
    out, _ = computed(FLASH_ATTENTION, FlashAttention, options, tensors)
    return narrowed(out, width)


def _is_decoding(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None) -> bool:
    """Returns true for few queries without gradients, whose keys a kernel splits."""
    return (q.shape[1] <= _MOST_ROWS and q.dtype in (torch.float16, torch.bfloat16)
            and not is_odd(q, v) and k.stride(-1) == 1 and v.stride(-1) == 1
            and not wants_gradient((q, k, v, sinks)))


def _decoded(options: Options, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None,
             sinks: Tensor | None, capture: Tensor | None) -> Tensor:
    """Returns out [B,Sq,H,DV]: each row of k and v is a page of a cache."""
    table = _kvcache.table_of(k, q.shape[0], None, None)
    if lengths is None:
        lengths = _kvcache.full_lengths(k, table)
    tensors = FLASH_ATTENTION_DECODE.ordered(q=q, k_cache=k, v_cache=v, block_table=table,
                                             cache_seqlens=lengths, sinks=sinks, capture_0=capture)
    if torch.is_grad_enabled():
        tensors = tuple(None if each is None else each.detach() for each in tensors)
    out: Tensor = FLASH_ATTENTION_DECODE(options, *tensors)[0]
    return out


# ---- masks -------------------------------------------------------------------------------------


def _table(mask: Tensor, q: Tensor, k: Tensor) -> tuple[tuple[str, str], _Captures]:
    """Returns the option and the captures of a table [B|1,H|1,Sq|1,Sk]."""
    wanted = (q.shape[0], q.shape[2], q.shape[1], k.shape[1])
    if mask.dim() != 4 or mask.shape[3] != wanted[3] or any(
            has not in (1, all) for has, all in zip(mask.shape, wanted)):
        raise InvalidArgument(f"attention_mask has shape {list(mask.shape)}; allowed is what "
                              f"broadcasts to [B,H,Sq,Sk] = {list(wanted)}")
    if mask.requires_grad:
        raise Unsupported("attention_mask requires a gradient, and none reaches it; detach it")
    option = ("mask_mod", _TABLE_MASK) if mask.dtype == torch.bool else ("score_mod", _TABLE_SCORE)
    if mask.dtype == torch.bool:
        mask = mask.to(torch.float16)
        count("cast attention_mask")
    elif not mask.dtype.is_floating_point:
        raise InvalidArgument(f"attention_mask has dtype {mask.dtype}; allowed are bool and "
                              "floating point")
    if not mask.is_contiguous():
        count("copied attention_mask")
        mask = mask.contiguous()
    steps = [0 if extent == 1 else step for extent, step in zip(mask.shape, mask.stride()[:3])]
    numbers = [torch.full((1,), step, dtype=torch.int64, device=mask.device) for step in steps]
    return option, (mask.reshape(-1), torch.cat(numbers))


class _Span(NamedTuple):
    """Which of the keys are seen, counted from the last of the first `keys`."""

    causal: bool
    keys: int
    left: int = -1  # how far a query sees to the left, and without causal to the right; -1: all


def _span(mask: Tensor | None, causal: bool, keys: int, window: int | None) -> _Span:
    """Returns what an Extents says; without a mask, what the attention's own arguments say.

    transformers counts the query's own key to a window.
    """
    if mask is not None:
        _, sides, keys, window = mask.shape
        if sides == 2:
            return _Span(False, keys, window)
    if window is None or keys <= window:
        return _Span(causal or mask is not None, keys)
    return _Span(causal or mask is not None, keys, window - 1)


class Arguments:
    """What a call has beside its tensors and its mask."""

    def __init__(self, scaling: float | None, softcap: float | None, sinks: Tensor | None) -> None:
        self.scaling, self.softcap = scaling, softcap or 0.0
        self.sinks = float_sinks(sinks)

    def options(self, span: _Span | None = None) -> Options:
        """Returns the operator's options; without a span every key is seen."""
        causal, left = (False, -1) if span is None else (span.causal, span.left)
        return options_for(self.scaling, causal, (left, left), self.softcap)


def _plain(call: Arguments, span: _Span, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    k, v = k[:, :span.keys], v[:, :span.keys]
    if _is_decoding(q, k, v, call.sinks):
        return _decoded(call.options(span), q, k, v, None, call.sinks, None)
    return _computed(call.options(span), q, k, v, call.sinks, _NONE)


def _packed(call: Arguments, span: _Span, q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor,
            cu_k: Tensor) -> Tensor:
    """Returns out [B,Sq,H,DV] where the rows, one after the other, are sequences by offsets."""
    batch = q.shape[0]
    if batch > 1 and not all(each.stride(0) == each.shape[1] * each.stride(1)
                             for each in (q, k, v)):
        count("copied to one row of sequences")
    rows = [each.flatten(0, 1) for each in (q, k, v)]
    out, _ = attend(call.options(span), rows[0], rows[1], rows[2], None, call.sinks, cu_q, cu_k)
    return out.view(batch, -1, *out.shape[1:])


def _by_starts(mask: Tensor, call: Arguments, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    options = (*call.options(_Span(True, 0)), ("mask_mod", STARTS_MOD))
    return _computed(options, q, k, v, call.sinks, (numbers_of(mask), None))


def _by_offsets(mask: Tensor, call: Arguments, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    cu = numbers_of(mask)
    return _packed(call, _span(None, True, k.shape[1], mask.shape[2]), q, k, v, cu, cu)


def by_intervals(mask: Tensor, call: Arguments, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    batch, queries, keys = q.shape[0], q.shape[1], k.shape[1]
    size = intervals_size(batch, queries, keys)
    if mask.numel() != size:
        raise InvalidArgument(f"attention_mask has {mask.numel()} numbers; for {queries} queries "
                              f"and {keys} keys lathe's masks have {size}: make it anew")
    flat = numbers_of(mask)
    capture = flat[first_place(batch):]
    options = (*call.options(), ("mask_mod", INTERVALS_MOD))
    if _is_decoding(q, k, v, call.sinks):
        return _decoded(options, q, k, v, flat[:batch], call.sinks, capture)
    return _computed(options, q, k, v, call.sinks, (capture, None))


def _by_table(mask: Tensor, call: Arguments, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    option, captures = _table(mask, q, k)
    return _computed((*call.options(), option), q, k, v, call.sinks, captures)


# ---- what transformers calls -------------------------------------------------------------------


def _refuse(dropout: float, output_attentions: bool, position_bias: Tensor | None) -> None:
    if dropout:
        raise Unsupported(f"dropout is {dropout}; allowed is 0.0: set the config's "
                          "attention_dropout to 0.0")
    if output_attentions:
        raise Unsupported("output_attentions is True; kernels keep no weights: load the model "
                          'with attn_implementation="eager" for them')
    if position_bias is not None:
        raise Unsupported("position_bias is given, whose gradient nothing here computes; load the "
                          'model with attn_implementation="sdpa"')


def _paged(call: Arguments, window: int | None, q: Tensor, k: Tensor, v: Tensor,
           more: dict[str, Any]) -> Tensor:
    """Returns out [1,T,H,DV] of one new token for each sequence, appended to a cache in pages."""
    rows = [each.flatten(0, 1)[:, None] for each in (q, k, v)]
    starts = more["cu_seq_lens_k"]
    tokens = rows[0].shape[0]
    lengths = (starts[1:tokens + 1] - starts[:tokens] - 1).to(torch.int32)
    span = _Span(True, 0, -1 if window is None else window - 1)
    out, _ = _kvcache.decode(call.options(span), rows[0], more["k_cache"], more["v_cache"], lengths,
                             more["block_table"], rows[1], rows[2], None, call.sinks)
    return out.view(q.shape[0], -1, *out.shape[2:])


def attention_forward(module: Any, query: Tensor, key: Tensor, value: Tensor,
                      attention_mask: Tensor | None, dropout: float = 0.0,
                      scaling: float | None = None, sliding_window: int | None = None,
                      softcap: float | None = None, is_causal: bool | None = None,
                      s_aux: Tensor | None = None, output_attentions: bool = False,
                      position_bias: Tensor | None = None, cache: Any = None, **more: Any
                      ) -> tuple[Tensor, None]:
    """Returns (out [B,Sq,H,DV], None) for query [B,H,Sq,D], key [B,HK,Sk,D] and value.

    It is called as transformers calls its attention functions. sliding_window counts the query's
    own key; s_aux are sinks. The masks are those of attention_mask() in _transformers_mask, or a
    table that broadcasts to [B,H,Sq,Sk].
    """
    _refuse(dropout, output_attentions, position_bias)
    if cache is not None:  # of continuous batching
        key, value = cache.update(key_states=key, value_states=value, layer_idx=module.layer_idx,
                                  kwargs=more)
    causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    call = Arguments(scaling, softcap, s_aux)
    q, k, v = (each.transpose(1, 2) for each in (query, key, value))
    if more.get("block_table") is not None and more.get("k_cache") is not None:
        return _paged(call, sliding_window, q, k, v, more), None
    return _masked(attention_mask, causal, sliding_window, call, q, k, v, more), None


def _masked(mask: Tensor | None, causal: bool, window: int | None, call: Arguments, q: Tensor,
            k: Tensor, v: Tensor, more: dict[str, Any]) -> Tensor:
    kind = kind_of(mask)
    cu_q, cu_k = more.get("cu_seq_lens_q"), more.get("cu_seq_lens_k")
    if mask is None or kind == "extents":
        span = _span(mask, causal, k.shape[1], window)
        if cu_q is not None and cu_k is not None:
            return _packed(call, span, q, k, v, cu_q, cu_k)
        mask = None
        if span.causal and span.keys == q.shape[1] == k.shape[1]:
            sees = span.keys if span.left < 0 else span.left + 1
            mask = packed_positions(more.get("position_ids"), q.shape[0], span.keys, sees)
        if mask is None:
            return _plain(call, span, q, k, v)
        kind = kind_of(mask)
    elif cu_q is not None and kind in ("intervals", "table"):
        raise InvalidArgument("attention_mask and cu_seq_lens_q are given; allowed is one: packed "
                              "sequences have no padding")
    return _BY_KIND[kind](mask, call, q, k, v)


_BY_KIND = {"offsets": _by_offsets, "starts": _by_starts, "intervals": by_intervals,
            "table": _by_table}
