# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Caches with new keys and latent attention, with garbage where nobody is: rows of padding.py."""
import torch

from attention import reference
from lathe.compat import flash_attn, flash_attn_3, flash_mla
from padding import NAN, Row
from padding_pages import (D, H, HK, LENGTHS, NEW, PAGE, PAGES, attended, cache_of, ints, keys_of,
                           ragged, random, whole)

# ---- caches with new keys ------------------------------------------------------------------------


def batch(garbage, queries=1, new=1, width=D):
    """Returns a query or more of each of four sequences, of which two are padding; new keys."""
    k_cache, v_cache, table, used = cache_of(garbage, width)
    return {"q": random(4, queries, H, width), "k_cache": k_cache, "v_cache": v_cache,
            "table": table, "used": used, "k": random(4, new, HK, width, seed=5),
            "v": random(4, new, HK, width, seed=6)}


def batch_named(k_cache, table, used, k, **others):
    """Returns the places of the new keys: those with a length and a page."""
    mask = torch.zeros(k_cache.shape[:2], dtype=torch.bool)
    for b, length in enumerate(used.tolist()):
        for at in range(length, length + k.shape[1]):
            if length >= 0 and at < table.shape[1] * PAGE and 0 <= table[b, at // PAGE] < 7:
                mask[table[b, at // PAGE], at % PAGE] = True
    return {"k_cache": mask, "v_cache": mask}


def batch_wanted(**options):
    def wanted(q, k_cache, v_cache, table, used, k, v):
        out = torch.full(q.shape, NAN, dtype=torch.float64)
        caches = [each.double().fill_(NAN) for each in (k_cache, v_cache)]
        for i in (0, 2):
            keys, values = keys_of(k_cache, i, k[i]), keys_of(v_cache, i, v[i])
            out[i] = attended(q[i], keys, values, causal=True)[0]
            for t in range(k.shape[1]):
                place = PAGES[i][(LENGTHS[i] + t) // PAGE], (LENGTHS[i] + t) % PAGE
                caches[0][place], caches[1][place] = k[i, t].double(), v[i, t].double()
        return out, *caches
    return wanted


def _with_cache(function, name):
    def call(q, k_cache, v_cache, table, used, k, v):
        out = function(q, k_cache, v_cache, k, v, cache_seqlens=used, causal=True, **{name: table})
        return out, k_cache, v_cache
    return call


def _caches(module, name):
    call = _with_cache(module.flash_attn_with_kvcache, name)
    for queries, new, width, what in ((1, 1, D, "new"), (1, 2, D, "other number of new"),
                                      (2, 2, 36, "odd width"), (1, 3, 20, "odd width, other"),
                                      (2, 0, D, "nothing new")):
        def make(garbage, queries=queries, new=new, width=width):
            return batch(garbage, queries, new, width)
        yield Row(module, "flash_attn_with_kvcache", make, call, batch_wanted(), batch_named,
                  what=what)


def _packed_new(garbage):
    """Returns ragged queries and ragged new keys, with padding rows in both."""
    found = ragged(garbage, NEW[:1] + (0, 1))
    k, v = random(9, HK, D, seed=5), random(9, HK, D, seed=6)
    k[6:], v[6:] = garbage.number, garbage.number
    return {**found, "k": k, "v": v, "cu_new": ints(0, 2, 2, 6, 6)}


def _packed_new_named(k_cache, **others):
    mask = torch.zeros(k_cache.shape[:2], dtype=torch.bool)
    for i in (0, 2):
        for at in range(LENGTHS[i], LENGTHS[i] + NEW[i]):
            mask[PAGES[i][at // PAGE], at % PAGE] = True
    return {"k_cache": mask, "v_cache": mask}


def _packed_new_wanted(q, k_cache, v_cache, k, v, cu_q, cu_new, **others):
    parts, caches = [], [each.double().fill_(NAN) for each in (k_cache, v_cache)]
    for i in (0, 2):
        at, new = slice(int(cu_q[i]), int(cu_q[i + 1])), slice(int(cu_new[i]), int(cu_new[i + 1]))
        parts.append((at, attended(q[at], keys_of(k_cache, i, k[new]), keys_of(v_cache, i, v[new]),
                                    causal=True)))
        for t in range(NEW[i]):
            place = PAGES[i][(LENGTHS[i] + t) // PAGE], (LENGTHS[i] + t) % PAGE
            caches[0][place], caches[1][place] = k[new][t].double(), v[new][t].double()
    return *whole(parts, q, len(q)), *caches


def _packed_new_call(q, k_cache, v_cache, table, used, cu_q, sinks, k, v, cu_new):
    found = flash_attn_3.flash_attn_with_kvcache(
        q, k_cache, v_cache, k, v, cache_seqlens=used, page_table=table, cu_seqlens_q=cu_q,
        cu_seqlens_k_new=cu_new, max_seqlen_q=2, causal=True, return_softmax_lse=True)
    return *found, k_cache, v_cache


def _chosen(garbage):
    """Returns sequences in chosen rows of a cache without pages, and of a table of pages."""
    found = batch(garbage)
    return {**found, "index": ints(2, garbage.index, 0, garbage.index)}


def _rows_wanted(q, k_cache, v_cache, table, used, k, v, index):
    """Returns what is wanted where sequences lie in rows 2 and 1 of a cache, 5 keys each."""
    out = torch.full(q.shape, NAN, dtype=torch.float64)
    for b, row in ((0, 2), (2, 1)):
        keys = [torch.cat([cache[row, :5], new[b]]) for cache, new in ((k_cache, k), (v_cache, v))]
        out[b] = attended(q[b], *keys, causal=True)[0]
    return out,


def _rows(garbage):
    found = _chosen(garbage)
    for name in ("k_cache", "v_cache"):
        cache = found[name] = random(4, PAGE, HK, D, seed=8)
        cache[1:3, 5:] = cache[0] = cache[3] = garbage.number
    length = min(garbage.length, 5)
    return {**found, "index": ints(2, garbage.index, 1, garbage.index),
            "used": ints(5, length, 5, length)}


def _rows_named(k_cache, used, index, **others):
    mask = torch.zeros(k_cache.shape[:2], dtype=torch.bool)
    for row, length in zip(index.tolist(), used.tolist()):
        if 0 <= row < 4 and length >= 0:
            mask[row, length] = True
    return {"k_cache": mask, "v_cache": mask}


def _rows_call(module):
    return lambda q, k_cache, v_cache, table, used, k, v, index: (module.flash_attn_with_kvcache(
        q, k_cache, v_cache, k, v, cache_seqlens=used, cache_batch_idx=index, causal=True),)


def _chosen_wanted(q, k_cache, v_cache, index, **others):
    out = torch.full(q.shape, NAN, dtype=torch.float64)
    for b, i in ((0, 2), (2, 0)):
        out[b] = attended(q[b], keys_of(k_cache, i), keys_of(v_cache, i), causal=True)[0]
    return out,


CACHES = (
    *_caches(flash_attn, "block_table"), *_caches(flash_attn_3, "page_table"),
    Row(flash_attn_3, "flash_attn_with_kvcache", _packed_new, _packed_new_call, _packed_new_wanted,
        _packed_new_named, what="packed new"),
    Row(flash_attn, "flash_attn_with_kvcache", _rows, _rows_call(flash_attn), _rows_wanted,
        _rows_named, what="rows"),
    Row(flash_attn_3, "flash_attn_with_kvcache", _rows, _rows_call(flash_attn_3), _rows_wanted,
        _rows_named, what="rows"),
    Row(flash_attn_3, "flash_attn_with_kvcache", _chosen,
        lambda q, k_cache, v_cache, table, used, k, v, index: (
            flash_attn_3.flash_attn_with_kvcache(
                q, k_cache, v_cache, cache_seqlens=used.index_select(0, ints(2, 1, 0, 3)),
                page_table=table, cache_batch_idx=index, causal=True),),
        _chosen_wanted, what="chosen rows of a table"),
)

# ---- latent attention ----------------------------------------------------------------------------


def _lists(garbage):
    kv = random(16, 1, 576)
    kv[10:] = garbage.number
    outside = garbage.index if not 0 <= garbage.index < 16 else -1
    lists = ints([3, outside, 7, 1], [outside] * 4, [9, 0, garbage.index, garbage.index])
    counts = ints(4, max(min(garbage.length, 4), -2**31), 2)
    return {"q": random(3, H, 576), "kv": kv, "indices": lists.unsqueeze(1), "counts": counts,
            "sink": torch.linspace(-1, 1, H)}


def _latent(q, keys, sink):
    """Returns (out [H,512], lse [H]) of one query [H,576]; the sink is in out alone."""
    out, lse = reference(q[None, None], keys[None], keys[None, ..., :512], scale=0.05)
    kept = torch.sigmoid(lse[0, :, 0] - sink.double())
    return out[0, 0] * kept[:, None], lse[0, :, 0]


def _lists_wanted(q, kv, indices, counts, sink):
    out, lse = torch.zeros(3, H, 512, dtype=torch.float64), torch.full((3, H), torch.inf)
    lse = lse.double()
    for t, keys in ((0, [3, 7, 1]), (2, [9, 0])):
        out[t], lse[t] = _latent(q[t], kv[keys], sink)
    return out, lse


def _latent_pages(garbage):
    _, _, table, used = cache_of(garbage)
    cache = random(7, PAGE, 1, 576)
    there = torch.zeros(7, PAGE, dtype=torch.bool)
    for pages, length in zip(PAGES, LENGTHS):
        for at in range(length):
            there[pages[at // PAGE], at % PAGE] = True
    cache[~there] = garbage.number
    return {"q": random(4, 2, H, 576), "cache": cache, "table": table, "used": used}


def _latent_wanted(q, cache, table, used):
    out = torch.full((4, 2, H, 512), NAN, dtype=torch.float64)
    for i in (0, 2):
        keys = keys_of(cache, i)
        out[i] = reference(q[i:i + 1], keys[None], keys[None, ..., :512], scale=0.05,
                           causal=True)[0][0]
    return out,


LATENT = (
    Row(flash_mla, "flash_mla_sparse_fwd", _lists,
        lambda q, kv, indices, counts, sink: flash_mla.flash_mla_sparse_fwd(
            q, kv, indices, 0.05, attn_sink=sink, topk_length=counts)[::2],
        _lists_wanted),
    Row(flash_mla, "flash_mla_with_kvcache", _latent_pages,
        lambda q, cache, table, used: flash_mla.flash_mla_with_kvcache(
            q, cache, table, used, 512, flash_mla.FlashMLASchedMeta(), softmax_scale=0.05,
            causal=True)[:1],
        _latent_wanted, what="pages"),
    Row(flash_mla, "flash_mla_with_kvcache", _lists,
        lambda q, kv, indices, counts, sink: tuple(
            each.squeeze(-1) if i else each.squeeze(1) for i, each in enumerate(
                flash_mla.flash_mla_with_kvcache(
                    q.unsqueeze(1), kv.unflatten(0, (2, 8)), None, None, 512,
                    flash_mla.FlashMLASchedMeta(), softmax_scale=0.05, indices=indices,
                    attn_sink=sink, topk_length=counts))),
        _lists_wanted, what="lists"),
)

ROWS = (*CACHES, *LATENT)
