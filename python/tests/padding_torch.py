# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Attention by lathe.torch, with garbage where nobody is: rows of padding.py's table."""
import torch

import lathe.torch as lt
import padding_slots
from padding import NAN, Row
from padding_attention import packed, packed_wanted, ragged_wanted
from padding_caches import batch, batch_named, batch_wanted
from padding_pages import (D, H, HK, LENGTHS, PAGE, PAGES, attended, ints, keys_of, ragged,
                           random, whole)
from tensors import NARROW

MODULES = (lt,)
E4M3 = torch.float8_e4m3fn


def _places(counts):
    """Yields (sequence, page, row) of the first keys of each sequence that has any."""
    for i, pages in enumerate(PAGES):
        for at in range(counts[i]):
            yield i, pages[at // PAGE], at % PAGE


def _batch_call(q, k_cache, v_cache, table, used, k, v):
    out, _ = lt.flash_attention_decode(q, k_cache, v_cache, table, used, k_new=k, v_new=v,
                                       causal=True)
    return out, k_cache, v_cache


def _ragged_call(q, k_cache, v_cache, table, used, cu_q, sinks):
    return lt.flash_attention_decode(q, k_cache, v_cache, table, used, cu_seqlens_q=cu_q,
                                     sinks=sinks, causal=True)


# ---- left padding --------------------------------------------------------------------------------

LEFT = (3, 0, 9)


def _left(garbage):
    found = ragged(garbage)
    for _, page, row in _places(LEFT):
        found["k_cache"][page, row] = found["v_cache"][page, row] = garbage.number
    return {**found, "left": ints(LEFT[0], garbage.length, LEFT[2], garbage.length)}


def _left_wanted(q, k_cache, v_cache, cu_q, sinks, **others):
    parts = []
    for i in (0, 2):
        at = slice(int(cu_q[i]), int(cu_q[i + 1]))
        keys, values = (keys_of(each, i)[LEFT[i]:] for each in (k_cache, v_cache))
        parts.append((at, attended(q[at], keys, values, sinks=sinks, causal=True)))
    return whole(parts, q, len(q))


def _left_call(left, **given):
    names = {"cu_q": "cu_seqlens_q", "table": "block_table", "used": "cache_seqlens"}
    return lt.flash_attention_decode(**{names.get(name, name): each
                                        for name, each in given.items()},
                                     leftpad=left, causal=True)


# ---- new keys of ragged rows, which turn ---------------------------------------------------------

ROWS_OF, TURNED = (2, 0, 4), 16


def _turning(garbage):
    """Returns ragged rows with keys of their own, and their positions; rows 6 to 8 are nobody's."""
    found = ragged(garbage, ROWS_OF)
    del found["sinks"]
    found |= {"q": random(9, H, D), "k": random(9, HK, D, seed=5), "v": random(9, HK, D, seed=6)}
    for name in "qkv":
        found[name][6:] = garbage.number
    angle = torch.linspace(0, 2, 40)[:, None] * torch.linspace(1, 0.1, TURNED // 2)
    return {**found, "cos": angle.cos(), "sin": angle.sin(),
            "positions": ints(5, 7, 30, 0, 31, 32, *[garbage.index] * 3)}


def _turned(rows, positions, cos, sin):
    """Returns rows [n,H,D] whose first columns are turned by halves, rounded once."""
    c, s = (each.double()[positions.long()][:, None] for each in (cos, sin))
    one, other, rest = rows.double().split([TURNED // 2, TURNED // 2, D - TURNED], -1)
    return torch.cat([one * c - other * s, other * c + one * s, rest], -1).half()


def _turning_wanted(q, k_cache, v_cache, k, v, cu_q, cos, sin, positions, **others):
    parts, caches = [], [each.double().fill_(NAN) for each in (k_cache, v_cache)]
    for i in (0, 2):
        at = slice(int(cu_q[i]), int(cu_q[i + 1]))
        rows, keys = (_turned(each[at], positions[at], cos, sin) for each in (q, k))
        parts.append((at, attended(rows, keys_of(k_cache, i, keys), keys_of(v_cache, i, v[at]),
                                    causal=True)))
        for t in range(ROWS_OF[i]):
            place = PAGES[i][(LENGTHS[i] + t) // PAGE], (LENGTHS[i] + t) % PAGE
            caches[0][place], caches[1][place] = keys[t].double(), v[at][t].double()
    return *whole(parts, q, len(q)), *caches


def _turning_named(k_cache, **others):
    mask = torch.zeros(k_cache.shape[:2], dtype=torch.bool)
    for i in (0, 2):
        for at in range(LENGTHS[i], LENGTHS[i] + ROWS_OF[i]):
            mask[PAGES[i][at // PAGE], at % PAGE] = True
    return {"k_cache": mask, "v_cache": mask}


def _turning_call(q, k_cache, v_cache, table, used, cu_q, k, v, cos, sin, positions):
    found = lt.flash_attention_decode(
        q, k_cache, v_cache, table, used, k_new=k, v_new=v, cu_seqlens_q=cu_q, rope_cos=cos,
        rope_sin=sin, rope_positions=positions, causal=True)
    return *found, k_cache, v_cache


# ---- keys on several ranks, codes of 8 bits ------------------------------------------------------


def _spread(garbage):
    """Returns one row of each sequence, of whose keys every second one lies here."""
    found = batch(garbage, new=0)
    total = [2 * length - 3 for length in LENGTHS]  # a row stands at the last of these
    return {**{name: found[name] for name in ("q", "k_cache", "v_cache", "table", "used")},
            "total": ints(total[0], garbage.length, total[2], garbage.length)}


def _spread_wanted(q, k_cache, v_cache, **others):
    out = torch.full(q.shape, NAN, dtype=torch.float64)
    for i in (0, 2):
        # Key j is key 2j + 1 of the sequence, so the row sees all but the last two.
        keys, values = (keys_of(each, i)[:-2] for each in (k_cache, v_cache))
        out[i] = attended(q[i], keys, values)[0]
    return out,


def _spread_call(q, k_cache, v_cache, table, used, total):
    return lt.flash_attention_decode(q, k_cache, v_cache, table, used, total_seqlens=total,
                                     key_stride=2, key_offset=1, causal=True)[:1]


def _coded(garbage):
    found = ragged(garbage)
    used = torch.zeros(7, PAGE, dtype=torch.bool)
    for _, page, row in _places(LENGTHS):
        used[page, row] = True
    for seed, name in enumerate(("k", "v")):
        # Codes of what is not a number are those of NaN.
        found[f"{name}_cache"] = found[f"{name}_cache"].float().clamp(-448, 448).to(E4M3)
        scale = random(7, PAGE, HK, seed=seed).float().abs() + 0.5
        scale[~used] = garbage.number
        found[f"{name}_scale"] = scale
    return found


def _coded_wanted(q, k_cache, v_cache, k_scale, v_scale, **others):
    keys, values = (cache.double() * scale.double()[..., None]
                    for cache, scale in ((k_cache, k_scale), (v_cache, v_scale)))
    return ragged_wanted(causal=True)(q, keys, values, **others)


def _coded_call(k_scale, v_scale, q, k_cache, v_cache, table, used, cu_q, sinks):
    return lt.flash_attention_decode(q, k_cache, v_cache, table, used, cu_seqlens_q=cu_q,
                                     k_scale=k_scale, v_scale=v_scale, sinks=sinks, causal=True)


# ---- lists over two caches -----------------------------------------------------------------------


def _lists(garbage):
    """Returns five rows, two of which no sequence has, with lists over two caches."""
    q, kv, extra = random(5, H, 64), random(16, 1, 64), random(8, 1, 64, seed=3)
    q[3:], kv[10:], extra[5:] = garbage.number, garbage.number, garbage.number
    none = garbage.index if not 0 <= garbage.index < 8 else -1
    lists = ints([3, none, 7, garbage.index], [none] * 4, [9, 0, *[garbage.index] * 2],
                 *[[garbage.index] * 4] * 2)
    more = ints([4, garbage.index], [none] * 2, [none, 2], *[[garbage.index] * 2] * 2)
    length = min(garbage.length, 0)
    return {"q": q, "k": kv, "extra": extra, "lists": lists[:, None], "more": more[:, None],
            "counts": ints(3, length, 2, garbage.length, garbage.length),
            "more_counts": ints(1, length, 2, garbage.length, garbage.length),
            "sinks": torch.linspace(-1, 1, H), "cu": ints(0, 3, 3, 3),
            "cu_k": ints(0, 10, 10, 10)}


def _lists_wanted(q, k, extra, sinks, **others):
    parts = []
    for row, chosen, more in ((0, [3, 7], [4]), (2, [9, 0], [2])):
        keys = torch.cat([k[chosen], extra[more]])
        out, _ = attended(q[row:row + 1], keys, keys, scale=0.3, sinks=sinks)
        _, lse = attended(q[row:row + 1], keys, keys, scale=0.3)
        parts.append((slice(row, row + 1), (out, lse)))
    return whole(parts, q, 5)


def _lists_call(q, k, extra, lists, more, counts, more_counts, sinks, cu, cu_k):
    return lt.sparse_flash_attention(
        q, k, None, lists, scale=0.3, k_extra=extra, indices_extra=more, topk_length=counts,
        topk_length_extra=more_counts, sinks=sinks, cu_seqlens_q=cu, cu_seqlens_k=cu_k,
        index_space="absolute", sinks_in_statistics=0)[::3]


ROWS = (
    *padding_slots.ROWS,
    Row(lt, "flash_attention", packed,
        lambda q, k, v, cu_q, cu_k: lt.flash_attention(q, k, v, cu_seqlens_q=cu_q,
                                                       cu_seqlens_k=cu_k, causal=True),
        packed_wanted(causal=True), gradients=("q", "k", "v")),
    Row(lt, "flash_attention_decode", batch, _batch_call, batch_wanted(), batch_named),
    Row(lt, "flash_attention_decode", ragged, _ragged_call, ragged_wanted(causal=True),
        what="ragged"),
    Row(lt, "flash_attention_decode", _left, _left_call, _left_wanted, what="left padding"),
    Row(lt, "flash_attention_decode", _turning, _turning_call, _turning_wanted, _turning_named,
        what="rotary"),
    Row(lt, "flash_attention_decode", _spread, _spread_call, _spread_wanted, what="spread keys"),
    *([Row(lt, "flash_attention_decode", _coded, _coded_call, _coded_wanted, what="8 bits")]
      if NARROW else ()),
    Row(lt, "sparse_flash_attention", _lists, _lists_call, _lists_wanted, what="two caches"),
)
