# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The functions of flash_attn 2.8.4 (Dao-AILab/flash-attention): names, parameters and defaults.

    from lathe.compat.flash_attn import flash_attn_func

Results differ in one place: a row that sees no key has lse -inf, where flash_attn gives +inf.
There is no dropout, no rotary embedding within the kernel and no left padding of caches. Widths
that are no multiple of 8 are padded by torch; a cache of such a width is padded whole at each call.
"""
from __future__ import annotations

from typing import Any, Sequence

from torch import Tensor

from lathe.compat import _kvcache
from lathe.compat._arguments import NOT_TENSORS, refuse_others
from lathe.compat._attention import attend, attend_packed, options_for
from lathe.compat._ragged import attend_varlen

__all__ = ["flash_attn_func", "flash_attn_kvpacked_func", "flash_attn_qkvpacked_func",
           "flash_attn_varlen_func", "flash_attn_varlen_kvpacked_func",
           "flash_attn_varlen_qkvpacked_func", "flash_attn_with_kvcache"]

# Rows of docs/python.md, as lathe.compat describes them.
DROP_INS = (
    ("flash_attn_func", "padded to a width that is a multiple of 8", "dropout_p"),
    ("flash_attn_kvpacked_func", "padded to a width that is a multiple of 8", "dropout_p"),
    ("flash_attn_qkvpacked_func", "padded to a width that is a multiple of 8", "dropout_p"),
    ("flash_attn_varlen_func",
     "padded to a width that is a multiple of 8; cast to int32; gathered keys and values from "
     "pages; waited for the device: lengths",
     "dropout_p"),
    ("flash_attn_varlen_kvpacked_func", "padded to a width that is a multiple of 8", "dropout_p"),
    ("flash_attn_varlen_qkvpacked_func", "padded to a width that is a multiple of 8", "dropout_p"),
    ("flash_attn_with_kvcache",
     "padded to a width that is a multiple of 8; cast to int32; appended by a call of its own; "
     "appended to the cache by torch",
     "rotary_cos; rotary_sin; cache_leftpad"),
)


def _result(out: Tensor, lse: Tensor, with_probabilities: bool) -> Any:
    """Returns out, or (out, lse, mask); lse has no gradient, the mask is empty without dropout."""
    return (out, lse.detach(), out.new_empty(0)) if with_probabilities else out


def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0,
                    softmax_scale: float | None = None, causal: bool = False,
                    window_size: Sequence[Any] = (-1, -1), softcap: float = 0.0,
                    alibi_slopes: Tensor | None = None, deterministic: bool = False,
                    return_attn_probs: bool = False) -> Any:
    """Returns out [B,Sq,H,DV] for q [B,Sq,H,D], k [B,Sk,HK,D] and v [B,Sk,HK,DV]."""
    try:
        options = options_for(softmax_scale, causal, window_size, softcap, deterministic,
                              dropout_p=dropout_p)
        return _result(*attend(options, q, k, v, alibi_slopes), return_attn_probs)
    except NOT_TENSORS:
        refuse_others(flash_attn_func, locals())
        raise


def flash_attn_kvpacked_func(q: Tensor, kv: Tensor, dropout_p: float = 0.0,
                             softmax_scale: float | None = None, causal: bool = False,
                             window_size: Sequence[Any] = (-1, -1), softcap: float = 0.0,
                             alibi_slopes: Tensor | None = None, deterministic: bool = False,
                             return_attn_probs: bool = False) -> Any:
    """Returns out [B,Sq,H,D] for q and kv [B,Sk,2,HK,D]; dkv is written by the kernel as it is."""
    try:
        options = options_for(softmax_scale, causal, window_size, softcap, deterministic,
                              dropout_p=dropout_p)
        return _result(*attend_packed(options, q, kv, alibi_slopes), return_attn_probs)
    except NOT_TENSORS:
        refuse_others(flash_attn_kvpacked_func, locals())
        raise


def flash_attn_qkvpacked_func(qkv: Tensor, dropout_p: float = 0.0,
                              softmax_scale: float | None = None, causal: bool = False,
                              window_size: Sequence[Any] = (-1, -1), softcap: float = 0.0,
                              alibi_slopes: Tensor | None = None, deterministic: bool = False,
                              return_attn_probs: bool = False) -> Any:
    """Returns out [B,S,H,D] for qkv [B,S,3,H,D]; dqkv is written by the kernel as it is."""
    try:
        options = options_for(softmax_scale, causal, window_size, softcap, deterministic,
                              dropout_p=dropout_p)
        return _result(*attend_packed(options, None, qkv, alibi_slopes), return_attn_probs)
    except NOT_TENSORS:
        refuse_others(flash_attn_qkvpacked_func, locals())
        raise


def flash_attn_varlen_func(q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor,
                           cu_seqlens_k: Tensor, max_seqlen_q: int, max_seqlen_k: int,
                           dropout_p: float = 0.0, softmax_scale: float | None = None,
                           causal: bool = False, window_size: Sequence[Any] = (-1, -1),
                           softcap: float = 0.0, alibi_slopes: Tensor | None = None,
                           deterministic: bool = False, return_attn_probs: bool = False,
                           block_table: Tensor | None = None) -> Any:
    """Returns out [Tq,H,DV] for packed q [Tq,H,D], k [Tk,HK,D] and v, or keys in pages.

    With a block table there is no gradient; queries of 16 bits read the pages in place.
    """
    try:
        options = options_for(softmax_scale, causal, window_size, softcap, deterministic,
                              dropout_p=dropout_p)
        found = attend_varlen(options, q, k, v, cu_seqlens_q, cu_seqlens_k, None, None,
                              block_table, alibi_slopes)
        return _result(*found, return_attn_probs)
    except NOT_TENSORS:
        refuse_others(flash_attn_varlen_func, locals())
        raise


def flash_attn_varlen_kvpacked_func(q: Tensor, kv: Tensor, cu_seqlens_q: Tensor,
                                    cu_seqlens_k: Tensor, max_seqlen_q: int, max_seqlen_k: int,
                                    dropout_p: float = 0.0, softmax_scale: float | None = None,
                                    causal: bool = False, window_size: Sequence[Any] = (-1, -1),
                                    softcap: float = 0.0, alibi_slopes: Tensor | None = None,
                                    deterministic: bool = False, return_attn_probs: bool = False
                                    ) -> Any:
    """Returns out [Tq,H,D] for packed q and kv [Tk,2,HK,D]."""
    try:
        options = options_for(softmax_scale, causal, window_size, softcap, deterministic,
                              dropout_p=dropout_p)
        found = attend_packed(options, q, kv, alibi_slopes, cu_seqlens_q, cu_seqlens_k)
        return _result(*found, return_attn_probs)
    except NOT_TENSORS:
        refuse_others(flash_attn_varlen_kvpacked_func, locals())
        raise


def flash_attn_varlen_qkvpacked_func(qkv: Tensor, cu_seqlens: Tensor, max_seqlen: int,
                                     dropout_p: float = 0.0, softmax_scale: float | None = None,
                                     causal: bool = False, window_size: Sequence[Any] = (-1, -1),
                                     softcap: float = 0.0, alibi_slopes: Tensor | None = None,
                                     deterministic: bool = False, return_attn_probs: bool = False
                                     ) -> Any:
    """Returns out [T,H,D] for packed qkv [T,3,H,D]."""
    try:
        options = options_for(softmax_scale, causal, window_size, softcap, deterministic,
                              dropout_p=dropout_p)
        found = attend_packed(options, None, qkv, alibi_slopes, cu_seqlens, cu_seqlens)
        return _result(*found, return_attn_probs)
    except NOT_TENSORS:
        refuse_others(flash_attn_varlen_qkvpacked_func, locals())
        raise


def flash_attn_with_kvcache(q: Tensor, k_cache: Tensor, v_cache: Tensor, k: Tensor | None = None,
                            v: Tensor | None = None, rotary_cos: Tensor | None = None,
                            rotary_sin: Tensor | None = None,
                            cache_seqlens: int | Tensor | None = None,
                            cache_batch_idx: Tensor | None = None,
                            cache_leftpad: Tensor | None = None, block_table: Tensor | None = None,
                            softmax_scale: float | None = None, causal: bool = False,
                            window_size: Sequence[Any] = (-1, -1), softcap: float = 0.0,
                            rotary_interleaved: bool = True, alibi_slopes: Tensor | None = None,
                            num_splits: int = 0, return_softmax_lse: bool = False) -> Any:
    """Returns out [B,Sq,H,DV] of queries over a cache, to which k and v are appended in place.

    The cache is [B,S,HK,D], or pages [P,page,HK,D] of any size with a block table. New keys of a
    negative length, or on a page that is none, go nowhere. Lengths on a GPU are not read by the
    host, so keys past the block table are an error on the simulator alone.
    """
    try:
        assert k_cache.stride(-1) == 1, "k_cache must have contiguous last dimension"
        assert v_cache.stride(-1) == 1, "v_cache must have contiguous last dimension"
        options = options_for(softmax_scale, causal, window_size, softcap, rotary_cos=rotary_cos,
                              rotary_sin=rotary_sin, cache_leftpad=cache_leftpad)
        table = _kvcache.table_of(k_cache, q.shape[0], cache_batch_idx, block_table)
        lengths = _kvcache.lengths_of(k_cache, table, cache_seqlens)
        out, lse = _kvcache.decode(options, q, k_cache, v_cache, lengths, table, k, v, alibi_slopes,
                                   None, num_splits)
        return (out, lse) if return_softmax_lse else out
    except NOT_TENSORS:
        refuse_others(flash_attn_with_kvcache, locals())
        raise
