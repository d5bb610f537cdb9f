# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The functions of FlashAttention 3 (flash_attn_interface, flash_attn_3 3.0.0, `hopper/`).

    from lathe.compat.flash_attn_3 import flash_attn_func

What the peer has only to choose how it works (num_splits of a prefill, pack_gqa, sm_margin,
scheduler_metadata, maximal lengths) is accepted, and nothing depends on it. 8-bit inputs, qv and
attention_chunk are refused; factors for 8-bit inputs are ignored with others, as there. The last
parameter is s_aux, as forks of the peer have it: sinks, one logit a head, which have a gradient.
"""
from __future__ import annotations

from typing import Any, Sequence

import torch
from torch import Tensor

from lathe._errors import InvalidArgument
from lathe.compat import _kvcache, _places, _ragged
from lathe.compat._arguments import NOT_TENSORS, refuse_others
from lathe.compat._attention import (attend, attend_packed, float_sinks, options_for,
                                     refuse_float8)
from lathe.torch._calls import count

__all__ = ["flash_attn_func", "flash_attn_qkvpacked_func", "flash_attn_varlen_func",
           "flash_attn_with_kvcache", "get_scheduler_metadata"]

# Rows of docs/python.md, as lathe.compat describes them.
DROP_INS = (
    ("flash_attn_func", "padded to a width that is a multiple of 8; cast sinks to float32",
     "qv; attention_chunk"),
    ("flash_attn_qkvpacked_func", "padded to a width that is a multiple of 8", "attention_chunk"),
    ("flash_attn_varlen_func",
     "padded to a width that is a multiple of 8; cast sinks to float32; moved used rows together; "
     "moved results to their slots",
     "qv; attention_chunk"),
    ("flash_attn_with_kvcache",
     "padded to a width that is a multiple of 8; cast to int32; cast sinks to float32; appended by "
     "a call of its own; appended to the cache by torch; chose rows of the page table; "
     "gathered keys and values from pages; waited for the device: lengths",
     "qv; rotary_cos; rotary_sin; cache_leftpad; attention_chunk"),
    ("get_scheduler_metadata", "", ""),
)


def _result(out: Tensor, lse: Tensor, with_lse: bool) -> Any:
    """Returns out, or (out, lse); lse has no gradient."""
    return (out, lse.detach()) if with_lse else out


def flash_attn_qkvpacked_func(qkv: Tensor, softmax_scale: float | None = None, causal: bool = False,
                              q_descale: Tensor | None = None, k_descale: Tensor | None = None,
                              v_descale: Tensor | None = None,
                              window_size: Sequence[Any] = (-1, -1), attention_chunk: int = 0,
                              softcap: float = 0.0, deterministic: bool = False,
                              num_heads_q: int | None = None, sm_margin: int = 0,
                              return_attn_probs: bool = False) -> Any:
    """Returns out [B,S,H,D] for qkv [B,S,3,H,D], or [B,S,H+2HK,D] with num_heads_q = H."""
    try:
        refuse_float8(qkv=qkv)
        options = options_for(softmax_scale, causal, window_size, softcap, deterministic,
                              attention_chunk=attention_chunk)
        if qkv.dim() == 5:
            return _result(*attend_packed(options, None, qkv), return_attn_probs)
        assert qkv.dim() == 4 and num_heads_q is not None, "qkv of 4 dimensions needs num_heads_q"
        heads = (qkv.shape[2] - num_heads_q) // 2
        assert num_heads_q + 2 * heads == qkv.shape[2], "heads of k and v differ in number"
        q, k, v = torch.split(qkv, [num_heads_q, heads, heads], dim=2)
        return _result(*attend(options, q, k, v), return_attn_probs)
    except NOT_TENSORS:
        refuse_others(flash_attn_qkvpacked_func, locals())
        raise


def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, softmax_scale: float | None = None,
                    causal: bool = False, qv: Tensor | None = None,
                    q_descale: Tensor | None = None, k_descale: Tensor | None = None,
                    v_descale: Tensor | None = None, window_size: Sequence[Any] = (-1, -1),
                    attention_chunk: int = 0, softcap: float = 0.0, num_splits: int = 1,
                    pack_gqa: bool | None = None, deterministic: bool = False, sm_margin: int = 0,
                    return_attn_probs: bool = False, s_aux: Tensor | None = None) -> Any:
    """Returns out [B,Sq,H,DV] for q [B,Sq,H,D], k [B,Sk,HK,D] and v [B,Sk,HK,DV]."""
    try:
        refuse_float8(q=q)
        options = options_for(softmax_scale, causal, window_size, softcap, deterministic, qv=qv,
                              attention_chunk=attention_chunk)
        return _result(*attend(options, q, k, v, None, float_sinks(s_aux)), return_attn_probs)
    except NOT_TENSORS:
        refuse_others(flash_attn_func, locals())
        raise


def flash_attn_varlen_func(q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor,
                           cu_seqlens_k: Tensor, max_seqlen_q: int, max_seqlen_k: int,
                           seqused_q: Tensor | None = None, seqused_k: Tensor | None = None,
                           softmax_scale: float | None = None, causal: bool = False,
                           qv: Tensor | None = None, q_descale: Tensor | None = None,
                           k_descale: Tensor | None = None, v_descale: Tensor | None = None,
                           window_size: Sequence[Any] = (-1, -1), attention_chunk: int = 0,
                           softcap: float = 0.0, num_splits: int = 1, pack_gqa: bool | None = None,
                           deterministic: bool = False, sm_margin: int = 0,
                           return_attn_probs: bool = False, s_aux: Tensor | None = None) -> Any:
    """Returns out [Tq,H,DV] for packed q, k and v. Torch moves slots used in part (seqused)."""
    try:
        refuse_float8(q=q)
        options = options_for(softmax_scale, causal, window_size, softcap, deterministic, qv=qv,
                              attention_chunk=attention_chunk)
        found = _ragged.attend_varlen(options, q, k, v, cu_seqlens_q, cu_seqlens_k, seqused_q,
                                      seqused_k, None, None, float_sinks(s_aux))
        return _result(*found, return_attn_probs)
    except NOT_TENSORS:
        refuse_others(flash_attn_varlen_func, locals())
        raise


def flash_attn_with_kvcache(q: Tensor, k_cache: Tensor, v_cache: Tensor, k: Tensor | None = None,
                            v: Tensor | None = None, qv: Tensor | None = None,
                            rotary_cos: Tensor | None = None, rotary_sin: Tensor | None = None,
                            cache_seqlens: int | Tensor | None = None,
                            cache_batch_idx: Tensor | None = None,
                            cache_leftpad: Tensor | None = None, page_table: Tensor | None = None,
                            cu_seqlens_q: Tensor | None = None,
                            cu_seqlens_k_new: Tensor | None = None,
                            max_seqlen_q: int | None = None, rotary_seqlens: Tensor | None = None,
                            q_descale: Tensor | None = None, k_descale: Tensor | None = None,
                            v_descale: Tensor | None = None, softmax_scale: float | None = None,
                            causal: bool = False, window_size: Sequence[Any] = (-1, -1),
                            attention_chunk: int = 0, softcap: float = 0.0,
                            rotary_interleaved: bool = True, scheduler_metadata: Any = None,
                            num_splits: int = 0, pack_gqa: bool | None = None, sm_margin: int = 0,
                            return_softmax_lse: bool = False, s_aux: Tensor | None = None) -> Any:
    """Returns out of queries over a cache, to which k and v are appended in place.

    q is [B,Sq,H,D], or packed [Tq,H,D] with cu_seqlens_q. Up to 16 packed queries a sequence, on
    average, read the cache in place; for more torch gathers it first.
    """
    try:
        assert k_cache.stride(-1) == 1, "k_cache must have contiguous last dimension"
        assert v_cache.stride(-1) == 1, "v_cache must have contiguous last dimension"
        refuse_float8(q=q, k_cache=k_cache)
        options = options_for(softmax_scale, causal, window_size, softcap, qv=qv,
                              rotary_cos=rotary_cos, rotary_sin=rotary_sin,
                              cache_leftpad=cache_leftpad, attention_chunk=attention_chunk)
        if page_table is not None and cache_batch_idx is not None:
            count("chose rows of the page table")
            page_table = _places.chosen_tables(_places.table32("page_table", page_table),
                                               _places.int32("cache_batch_idx", cache_batch_idx))
            cache_batch_idx = None
        sinks = float_sinks(s_aux)
        batch = q.shape[0] if cu_seqlens_q is None else cu_seqlens_q.shape[0] - 1
        table = _kvcache.table_of(k_cache, batch, cache_batch_idx, page_table, "page_table")
        lengths = _kvcache.lengths_of(k_cache, table, cache_seqlens)
        if k is not None and (cu_seqlens_q is not None or cu_seqlens_k_new is not None):
            lengths = _append(k_cache, v_cache, table, lengths, k, v, cu_seqlens_k_new)
            k = v = None
        if cu_seqlens_q is None:
            out, lse = _kvcache.decode(options, q, k_cache, v_cache, lengths, table, k, v, None,
                                       sinks, num_splits)
        else:
            out, lse = _ragged.attend_pages(options, q, k_cache, v_cache, cu_seqlens_q, lengths,
                                            table, None, sinks, num_splits)
        return (out, lse) if return_softmax_lse else out
    except NOT_TENSORS:
        refuse_others(flash_attn_with_kvcache, locals())
        raise


def _append(k_cache: Tensor, v_cache: Tensor, table: Tensor, lengths: Tensor, k: Tensor,
            v: Tensor | None, starts: Tensor | None) -> Tensor:
    if v is None:
        raise InvalidArgument("k is given, but v is not; give both, or neither")
    if starts is None:
        return _kvcache.append(k_cache, v_cache, table, lengths, k, v)
    return _kvcache.append_packed(k_cache, v_cache, table, lengths, k, v, starts)


def get_scheduler_metadata(batch_size: int, max_seqlen_q: int, max_seqlen_k: int, num_heads_q: int,
                           num_heads_kv: int, headdim: int, cache_seqlens: Tensor,
                           qkv_dtype: torch.dtype = torch.bfloat16, headdim_v: int | None = None,
                           cu_seqlens_q: Tensor | None = None,
                           cu_seqlens_k_new: Tensor | None = None,
                           cache_leftpad: Tensor | None = None, page_size: int | None = None,
                           max_seqlen_k_new: int = 0, causal: bool = False,
                           window_size: Sequence[Any] = (-1, -1), attention_chunk: int = 0,
                           has_softcap: bool = False, num_splits: int = 0,
                           pack_gqa: bool | None = None, sm_margin: int = 0) -> Tensor:
    """Returns an empty tensor: kernels here need no schedule that is made before."""
    return torch.empty(0, dtype=torch.int32, device=cache_seqlens.device)
