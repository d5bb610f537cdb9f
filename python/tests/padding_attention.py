# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Attention by the peers' names, with garbage where nobody is: rows of padding.py's table."""
import torch

import padding_caches
from attention import skip_without_pages_of_aten
from lathe.compat import flash_attn, flash_attn_3, flash_attn_4, flash_mla, sdpa, torch_cp, vllm
from padding import Row
from padding_pages import D, H, HK, attended, cache_of, ints, keys_of, ragged, random, whole

MODULES = (flash_attn, flash_attn_3, flash_attn_4, flash_mla, sdpa, torch_cp, vllm)
REASONS = {(flash_attn_3, "get_scheduler_metadata"): "reads no tensor",
           (flash_attn_4, "flash_attn_func"): "refuses gather_kv_indices",
           (vllm, "get_scheduler_metadata"): "reads no tensor"}

# ---- packed queries and keys ---------------------------------------------------------------------

ROWS_Q, ROWS_K = (0, 3, 3, 7), (0, 5, 9, 14)  # the second sequence has no queries


def packed(garbage, **more):
    """Returns packed q, k, v with two rows each past the last offset, and offsets with padding."""
    q, k, v = random(9, H, D), random(16, HK, D), random(16, HK, D, seed=1)
    for each, last in ((q, 7), (k, 14), (v, 14)):
        each[last:] = garbage.number
    # Sequences of padding begin and end at the last offset.
    return {"q": q, "k": k, "v": v, "cu_q": ints(*ROWS_Q, 7, 7), "cu_k": ints(*ROWS_K, 14, 14),
            **more}


def packed_wanted(lse=True, used_q=None, used_k=None, **options):
    def wanted(q, k, v, sinks=None, **others):
        parts = []
        for i in range(3):
            a, b, c, d = ROWS_Q[i], ROWS_Q[i + 1], ROWS_K[i], ROWS_K[i + 1]
            b = b if used_q is None else min(b, a + max(used_q[i], 0))
            d = d if used_k is None else min(d, c + max(used_k[i], 0))
            parts.append((slice(a, b), attended(q[a:b], k[c:d], v[c:d], sinks=sinks, **options)))
        return whole(parts, q, 9, lse)
    return wanted


def _kv(function):
    def call(q, k, v, cu_q, cu_k):
        return function(q, torch.stack([k, v], 1), cu_q, cu_k, 4, 5, causal=True,
                        return_attn_probs=True)[:2]
    return call


def _qkv_inputs(garbage):
    found = packed(garbage)
    k, v = (found[name][:9].clone() for name in "kv")
    k[7:], v[7:] = garbage.number, garbage.number
    return {"q": found["q"][:, :HK].clone(), "k": k, "v": v, "cu_q": found["cu_q"]}


def _qkv_wanted(q, k, v, cu_q):
    parts = [(slice(a, b), attended(q[a:b], k[a:b], v[a:b]))
             for a, b in zip(ROWS_Q[:-1], ROWS_Q[1:])]
    return whole(parts, q, 9)


USED_Q, USED_K = (2, 0, 4), (5, 0, 4)


def _used(garbage):
    return packed(garbage, sinks=torch.linspace(-1, 1, H),
                   used_q=ints(*USED_Q, garbage.length, garbage.length),
                   used_k=ints(*USED_K, garbage.length, garbage.length))


_QKV = ("q", "k", "v")
PACKED = (
    Row(flash_attn, "flash_attn_varlen_func", packed,
        lambda q, k, v, cu_q, cu_k: flash_attn.flash_attn_varlen_func(
            q, k, v, cu_q, cu_k, 1, 1, causal=True, return_attn_probs=True)[:2],
        packed_wanted(causal=True), gradients=_QKV),
    Row(flash_attn, "flash_attn_varlen_kvpacked_func", packed,
        _kv(flash_attn.flash_attn_varlen_kvpacked_func), packed_wanted(causal=True),
        gradients=_QKV),
    Row(flash_attn, "flash_attn_varlen_qkvpacked_func", _qkv_inputs,
        lambda q, k, v, cu_q: flash_attn.flash_attn_varlen_qkvpacked_func(
            torch.stack([q, k, v], 1), cu_q, 4, return_attn_probs=True)[:2],
        _qkv_wanted, gradients=_QKV),
    Row(flash_attn_3, "flash_attn_varlen_func", _used,
        lambda q, k, v, cu_q, cu_k, sinks, used_q, used_k: flash_attn_3.flash_attn_varlen_func(
            q, k, v, cu_q, cu_k, 4, 5, used_q, used_k, s_aux=sinks, return_attn_probs=True),
        packed_wanted(used_q=USED_Q, used_k=USED_K), gradients=(*_QKV, "sinks")),
    Row(flash_attn_4, "flash_attn_varlen_func", _used,
        lambda q, k, v, cu_q, cu_k, sinks, used_q, used_k: flash_attn_4.flash_attn_varlen_func(
            q, k, v, cu_seqlens_q=cu_q, cu_seqlens_k=cu_k, seqused_k=used_k, causal=True,
            learnable_sink=sinks),
        packed_wanted(used_k=USED_K, causal=True), gradients=(*_QKV, "sinks")),
    Row(vllm, "flash_attn_varlen_func", packed,
        lambda q, k, v, cu_q, cu_k: vllm.flash_attn_varlen_func(
            q, k, v, 4, cu_q, 5, cu_k, return_softmax_lse=True, window_size=(2, 1)),
        packed_wanted(left=2, right=1), gradients=_QKV),
    Row(sdpa, "register", packed,
        lambda q, k, v, cu_q, cu_k: torch.ops.aten._flash_attention_forward(
            q, k, v, cu_q, cu_k, 4, 5, 0.0, True, False)[:2],
        packed_wanted(causal=True), gradients=_QKV, what="packed"),
)

# ---- queries over pages --------------------------------------------------------------------------

def ragged_wanted(lse=True, sinks=True, **options):
    given = sinks

    def wanted(q, k_cache, v_cache, cu_q, sinks, **others):
        parts = []
        for i in (0, 2):
            at = slice(int(cu_q[i]), int(cu_q[i + 1]))
            parts.append((at, attended(q[at], keys_of(k_cache, i), keys_of(v_cache, i),
                                        sinks=sinks if given else None, **options)))
        return whole(parts, q, len(q), lse)
    return wanted


def _vllm(longest, **options):
    def call(q, k_cache, v_cache, table, used, cu_q, sinks):
        out = torch.full((len(q), H, 2 * D), 7.0).half()[..., :D]
        return vllm.flash_attn_varlen_func(
            q, k_cache, v_cache, longest, cu_q, 3, seqused_k=used, block_table=table, s_aux=sinks,
            return_softmax_lse=True, out=out, **options)
    return call


def _ones(garbage):
    """Returns one query each for sequences 0 and 2."""
    return ragged(garbage, (1, 0, 1))


def _long(garbage):
    found = ragged(garbage, (2, 0, 1))
    # Many queries, so that keys are gathered.
    q = random(90, H, D)
    q[83:] = garbage.number
    return {**found, "q": q, "cu_q": ints(0, 80, 80, 83, 83)}


def _batched(garbage):
    """Returns three queries of each sequence, of which the first ones are used."""
    k, v, table, used = cache_of(garbage)
    q = random(4, 3, H, D)
    q[0, 2:] = q[1] = q[3] = garbage.number
    lengths = ints(2, min(garbage.length, 0), 3, min(garbage.length, 0))
    return {"q": q, "k_cache": k, "v_cache": v, "table": table, "used": used, "used_q": lengths}


def _batched_wanted(q, k_cache, v_cache, **others):
    out = torch.zeros(q.shape, dtype=torch.float64)
    lse = torch.full((4, H, 3), -torch.inf, dtype=torch.float64)
    for i, length in ((0, 2), (2, 3)):
        out[i, :length], lse[i, :, :length] = attended(
            q[i, :length], keys_of(k_cache, i), keys_of(v_cache, i), causal=True)
    return out, lse


RAGGED = (
    Row(vllm, "flash_attn_varlen_func", _ones, _vllm(1, causal=True), ragged_wanted(causal=True),
        what="one query"),
    Row(vllm, "flash_attn_varlen_func", ragged, _vllm(2, causal=True, window_size=(6, 0)),
        ragged_wanted(causal=True, left=6), what="few queries"),
    Row(vllm, "flash_attn_varlen_func", ragged, _vllm(1, causal=True),
        ragged_wanted(causal=True), what="more queries than max_seqlen_q"),
    Row(vllm, "flash_attn_varlen_func", ragged, _vllm(1), ragged_wanted(), what="whole"),
    Row(vllm, "flash_attn_varlen_func", ragged, _vllm(2, window_size=(6, 2)),
        ragged_wanted(left=6, right=2), what="windows"),
    Row(vllm, "flash_attn_varlen_func", _long, _vllm(80, causal=True),
        ragged_wanted(causal=True), what="many queries"),
    Row(flash_attn, "flash_attn_varlen_func", ragged,
        lambda q, k_cache, v_cache, table, used, cu_q, sinks: flash_attn.flash_attn_varlen_func(
            q, k_cache, v_cache, cu_q, ints(0, 11, 11, 31, 31), 2, 20, causal=True,
            alibi_slopes=torch.linspace(0, 1, 4 * H).view(4, H), block_table=table,
            return_attn_probs=True)[:2],
        lambda **given: _ragged_slopes(**given), what="pages, slopes of each sequence"),
    Row(flash_attn_3, "flash_attn_with_kvcache", ragged,
        lambda q, k_cache, v_cache, table, used, cu_q, sinks: flash_attn_3.flash_attn_with_kvcache(
            q, k_cache, v_cache, cache_seqlens=used, page_table=table, cu_seqlens_q=cu_q,
            max_seqlen_q=2, causal=True, s_aux=sinks, return_softmax_lse=True),
        ragged_wanted(causal=True), what="ragged"),
    Row(flash_attn_4, "flash_attn_varlen_func", ragged,
        lambda q, k_cache, v_cache, table, used, cu_q, sinks: flash_attn_4.flash_attn_varlen_func(
            q, k_cache, v_cache, cu_seqlens_q=cu_q, seqused_k=used, page_table=table,
            learnable_sink=sinks),
        ragged_wanted(), what="pages"),
    Row(flash_attn_4, "flash_attn_varlen_func", _batched,
        lambda q, k_cache, v_cache, table, used, used_q: flash_attn_4.flash_attn_varlen_func(
            q, k_cache, v_cache, seqused_q=used_q, seqused_k=used, page_table=table, causal=True),
        lambda **given: _batched_wanted(**given), what="pages, used queries of a batch"),
    Row(sdpa, "register", ragged, lambda **given: _pages_of_aten(**given),
        ragged_wanted(causal=True, sinks=False), what="pages"),
)


def _pages_of_aten(q, k_cache, v_cache, table, used, cu_q, sinks):
    skip_without_pages_of_aten()
    return torch.ops.aten._flash_attention_forward(
        q, k_cache, v_cache, cu_q, None, 2, 20, 0.0, True, False, seqused_k=used,
        block_table=table)[:2]


def _ragged_slopes(q, k_cache, v_cache, cu_q, **others):
    slopes, parts = torch.linspace(0, 1, 4 * H).view(4, H), []
    for i in (0, 2):
        at = slice(int(cu_q[i]), int(cu_q[i + 1]))
        parts.append((at, attended(q[at], keys_of(k_cache, i), keys_of(v_cache, i), causal=True,
                                    slopes=slopes[i])))
    return whole(parts, q, len(q))

ROWS = (*PACKED, *RAGGED, *padding_caches.ROWS)
