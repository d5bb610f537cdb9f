# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The rows of functions.py for what servers call: slots, records, drafts, ragged pages, 8 bits.

n is a number of sequences, or of rows of three packed sequences; it may be 0. What a call changes
is a copy of an input, which it returns beside its results. Codes of 8 bits are made in the call, or
come as bytes, as torch neither draws nor adds them.
"""
import torch

import lathe.torch as lt
from function_row import Row
from tensors import NARROW

E4M3 = torch.float8_e4m3fn


def _ints(*values):
    return torch.tensor(values, dtype=torch.int32)


def _copies(*tensors):
    return [each.detach().clone(memory_format=torch.contiguous_format) for each in tensors]


def _codes(*shape):
    """Returns bytes that are numbers of e4m3, none of them a NaN."""
    return torch.randn(shape).to(E4M3).view(torch.uint8)


def _three(rows):
    """Returns offsets of three sequences of rows, the second one empty."""
    return _ints(0, max(rows - 2, 0), max(rows - 2, 0), rows)


# ---- Kimi Delta Attention ------------------------------------------------------------------------

H, HV, WIDTH, RECORDS = 1, 2, 16, 4
TAPS = (2 * H + HV) * WIDTH


def _tokens(n, t, dtype, joined=False):
    """Returns t tokens of n sequences: [n,t,..], or joined [1,n*t,..]."""
    shape = (1, n * t) if joined else (n, t)
    found = {"q": torch.randn(*shape, H, WIDTH), "k": torch.randn(*shape, H, WIDTH) / 4,
             "v": torch.randn(*shape, HV, WIDTH), "g": -torch.rand(*shape, HV, WIDTH),
             "beta": torch.rand(*shape, HV)}
    return {name: each.to(dtype) for name, each in found.items()}


def _slots(n):
    """Returns the slots of n sequences, of n + 2: none is the sequence's own number."""
    return torch.arange(n, dtype=torch.int32).flip(0) + 1


def _rings(n, dtype):
    """Returns records of n + 2 slots: some have room for two tokens more, in others they fold."""
    return {"ring_k": (torch.randn(n + 2, RECORDS, H, WIDTH) / 4).to(dtype),
            "ring_u": torch.randn(n + 2, RECORDS, HV, WIDTH),
            "ring_g": -torch.rand(n + 2, RECORDS, HV, WIDTH),
            "ring_count": torch.arange(n + 2, dtype=torch.int32) % 4}


def _pool(n):
    return {"pool": torch.randn(n + 2, HV, WIDTH, WIDTH)}


def _checkpoints(n, dtype):
    """Three tokens of each sequence, from slot n + 1 or zeros, kept after the second one too."""
    return {**_tokens(n, 3, dtype, joined=True), "pool": torch.randn(2 * n + 2, HV, WIDTH, WIDTH),
            "slots": torch.arange(n, dtype=torch.int32), "known": torch.arange(n).int() % 2}


def _kda_checkpoints(pool, slots, known, **tokens):
    (pool,), n = _copies(pool), len(slots)
    pool = pool.bfloat16()
    o, _, _ = lt.kda(
        **tokens, state_pool=pool, state_indices=slots, cu_seqlens=torch.arange(n + 1).int() * 3,
        source_indices=torch.full_like(slots, 2 * n + 1), has_initial_state=known,
        cu_checkpoints=torch.arange(n + 1).int(), checkpoint_tokens=torch.full_like(slots, 2),
        checkpoint_slots=slots + n)
    return o, pool


def _recurrent_rings(n, dtype):
    return {**_tokens(n, 2, dtype), **_pool(n), **_rings(n, dtype), "slots": _slots(n)}


def _kda_recurrent_rings(q, k, v, g, beta, slots, **changed):
    changed = dict(zip(changed, _copies(*changed.values())))
    pool = changed.pop("pool")
    o, _ = lt.kda_recurrent(q, k, v, g, beta, state_pool=pool, state_indices=slots, **changed)
    return o, pool, *changed.values()


def _drafts(n, dtype):
    return {**_tokens(n, 2, dtype), "pool": torch.randn(2 * n + 1, HV, WIDTH, WIDTH),
            "slots": torch.arange(2 * n, dtype=torch.int32).view(n, 2),
            "accepted": torch.arange(n, dtype=torch.int32) % 2 + 1}


def _kda_drafts(pool, slots, accepted, **tokens):
    (pool,) = _copies(pool)
    o, _ = lt.kda_recurrent(**tokens, state_pool=pool, state_indices=slots,
                            num_accepted_tokens=accepted)
    return o, pool


def _kda_verified(pool, slots, **tokens):
    """Nothing is written; every other sequence has no state before."""
    (pool,) = _copies(pool)
    sources = torch.where(slots % 2 == 0, slots, -1)
    o, _ = lt.kda_recurrent(**tokens, state_pool=pool, state_indices=slots,
                            source_indices=sources, update_state=0)
    return o, pool


def _layer(n, dtype, tokens=()):
    found = {"qkv": torch.randn(n, *tokens, TAPS), "conv_weight": torch.randn(TAPS, 4) / 2,
             "conv_pool": torch.randn(n + 2, TAPS, 3),
             "g": -torch.rand(n, *tokens, HV, WIDTH), "beta": torch.rand(n, *tokens, HV),
             "conv_bias": torch.randn(TAPS)}
    return {**{name: each.to(dtype) for name, each in found.items()},
            "state_pool": torch.randn(n + 2, HV, WIDTH, WIDTH), "state_indices": _slots(n)}


_IN_PLACE = ("state_pool", "conv_pool", "ring_k", "ring_u", "ring_g", "ring_count")


def _kda_decode(**given):
    changed = [name for name in _IN_PLACE if name in given]
    given = {**given, **dict(zip(changed, _copies(*(given[name] for name in changed))))}
    return lt.kda_decode(**given), *(given[name] for name in changed)


KDA = (
    Row(lt, "kda", _checkpoints, _kda_checkpoints, what="checkpoints"),
    Row(lt, "kda_recurrent", _recurrent_rings, _kda_recurrent_rings, what="rings"),
    Row(lt, "kda_recurrent", _drafts, _kda_drafts, what="drafts"),
    Row(lt, "kda_recurrent", lambda n, t: {**_tokens(n, 2, t), **_pool(n), "slots": _slots(n)},
        _kda_verified, what="verified"),
    Row(lt, "kda_decode", lambda n, t: {**_layer(n, t, (2,)), **_rings(n, t)}, _kda_decode,
        what="rings"),
    Row(lt, "kda_decode", _layer, lambda state_indices, **given: _kda_decode(
        **given, state_indices=state_indices, source_indices=state_indices.roll(1),
        update_state=0), what="sources"),
)

# ---- causal convolution --------------------------------------------------------------------------


def _steps(columns, packed=False):
    """Returns a maker of three tokens of n sequences, and of states in n + 2 slots."""
    def made(n, dtype):
        x = torch.randn(n, 3, 32)
        return {"x": (x.flatten(0, 1) if packed else x).to(dtype),
                "weight": torch.randn(32, 4).to(dtype), "bias": torch.randn(32).to(dtype),
                "pool": torch.randn(n + 2, 32, columns).to(dtype), "slots": _slots(n),
                "counts": torch.arange(n, dtype=torch.int32) % 3 + 1}
    return made


def _update(**names):
    """Returns a call of causal_conv1d_update; names: what the counts are, and options."""
    def call(x, weight, bias, pool, slots, counts):
        (pool,) = _copies(pool)
        given = {name: counts if value is None else value for name, value in names.items()}
        return lt.causal_conv1d_update(x, pool, weight, bias, state_indices=slots, **given,
                                       activation="silu"), pool
    return call


def _update_packed(x, weight, bias, pool, slots, counts):
    """As many tokens of each sequence; every other one has nothing before."""
    (pool,) = _copies(pool)
    return lt.causal_conv1d_update(
        x, pool, weight, bias, cu_seqlens=torch.arange(len(slots) + 1).int() * 3,
        state_indices=slots, source_indices=torch.where(slots % 2 == 0, slots, -1)), pool


CONV = (
    Row(lt, "causal_conv1d_update", _steps(3, packed=True), _update_packed, what="rows"),
    Row(lt, "causal_conv1d_update", _steps(5), _update(cache_seqlens=None), what="ring"),
    Row(lt, "causal_conv1d_update", _steps(6), _update(num_accepted_tokens=None), what="drafts"),
)

# ---- attention -----------------------------------------------------------------------------------

PAGES = ((2, 0), (1, 4), (5, 3))
LENGTHS = (4, 0, 5)


def _ragged(n, dtype):
    """Returns n rows of three sequences over six pages of 8 keys, of which two hold each."""
    return {"q": torch.randn(n, 4, 32).to(dtype), "k_cache": torch.randn(6, 8, 2, 32).to(dtype),
            "v_cache": torch.randn(6, 8, 2, 32).to(dtype), "table": _ints(*PAGES),
            "lengths": _ints(*LENGTHS), "k": torch.randn(n, 2, 32).to(dtype),
            "v": torch.randn(n, 2, 32).to(dtype), "cos": torch.randn(32, 8),
            "sin": torch.randn(32, 8)}


def _ragged_call(q, k_cache, v_cache, table, lengths, k, v, cos, sin):
    k_cache, v_cache = _copies(k_cache, v_cache)
    found = lt.flash_attention_decode(
        q, k_cache, v_cache, table, lengths, k_new=k, v_new=v, cu_seqlens_q=_three(len(q)),
        leftpad=_ints(1, 0, 2), rope_cos=cos, rope_sin=sin, causal=True)
    return *found, k_cache, v_cache


def _positions(n, dtype):
    """Returns two rows of each of n sequences, which read the pages of _ragged, and positions."""
    found = _ragged(0, dtype)
    return {"q": torch.randn(n, 2, 4, 32).to(dtype),
            **{name: found[name] for name in ("k_cache", "v_cache", "cos", "sin")},
            "table": _ints(*PAGES)[torch.arange(n) % 3],
            "lengths": torch.arange(n, dtype=torch.int32) % 14 + 2,
            "positions": torch.arange(n, dtype=torch.int32) % 7}


def _positions_call(q, k_cache, v_cache, table, lengths, positions, cos, sin):
    return lt.flash_attention_decode(q, k_cache, v_cache, table, lengths, rope_cos=cos,
                                     rope_sin=sin, rope_positions=positions, rope_interleaved=1,
                                     causal=True)


def _spread_keys(q, k_cache, v_cache, table, lengths, positions, cos, sin):
    """Every second key of a sequence lies here."""
    return lt.flash_attention_decode(q, k_cache, v_cache, table, lengths,
                                     total_seqlens=lengths * 2, key_stride=2, key_offset=1,
                                     causal=True)


def _codes_of_pages(n, dtype):
    found = _ragged(n, dtype)
    for name in ("k", "v"):
        found |= {f"{name}_cache": _codes(6, 8, 2, 32), f"{name}_scale": torch.rand(6, 8, 2) + 0.5}
    return found


def _codes_call(q, k_cache, v_cache, table, lengths, k, v, k_scale, v_scale, cos, sin):
    changed = _copies(k_cache, v_cache, k_scale, v_scale)
    codes = [each.view(E4M3) for each in changed[:2]]
    found = lt.flash_attention_decode(
        q, *codes, table, lengths, k_new=k, v_new=v, k_scale=changed[2], v_scale=changed[3],
        cu_seqlens_q=_three(len(q)), causal=True)
    return *found, *changed


def _bytes_of_rows(*shape):
    """Returns rows of 656 bytes: 512 codes, four scales, 64 of bfloat16."""
    scales = (torch.rand(*shape, 4) + 0.5).view(torch.uint8)
    return torch.cat([_codes(*shape, 512), scales,
                      torch.randn(*shape, 64).bfloat16().view(torch.uint8)], -1)


def _latent(n, dtype):
    return {"q": (torch.randn(n, 1, 2, 576) / 8).to(dtype), "k_cache": _bytes_of_rows(6, 8),
            "table": _ints(*PAGES)[torch.arange(n) % 3],
            "lengths": torch.arange(n, dtype=torch.int32) % 14 + 2}


def _latent_call(q, k_cache, table, lengths):
    return lt.flash_attention_decode(q, k_cache, None, table, lengths, row_format="e4m3_656")


def _narrow(n, dtype):
    return {"q": torch.randn(2, n, 4, 32).to(dtype), "k": _codes(2, n, 2, 32),
            "v": _codes(2, n, 2, 32), "k_scale": torch.rand(2) + 0.5}


def _narrow_call(q, k, v, k_scale):
    one = torch.ones(1)
    return lt.flash_attention(q.to(E4M3), k.view(E4M3), v.view(E4M3), q_scale=one, k_scale=k_scale,
                              v_scale=one / 2, causal=True)


def _two_caches(n, dtype):
    """Returns n packed rows with lists over two caches, of which some entries count."""
    return {"q": (torch.randn(n, 2, 64) / 2).to(dtype), "k": torch.randn(12, 1, 64).to(dtype),
            "k_extra": torch.randn(7, 1, 64).to(dtype),
            "lists": torch.randint(-1, 12, (n, 1, 4), dtype=torch.int32),
            "lists_extra": torch.randint(-1, 7, (n, 1, 3), dtype=torch.int32),
            "counts": torch.arange(n, dtype=torch.int32) % 5, "sinks": torch.randn(2)}


def _two_caches_call(q, k, k_extra, lists, lists_extra, counts, sinks):
    return lt.sparse_flash_attention(
        q, k, None, lists, scale=0.2, k_extra=k_extra, indices_extra=lists_extra, sinks=sinks,
        topk_length=counts, topk_length_extra=counts, index_space="absolute",
        sinks_in_statistics=0)


ATTENTION = (
    Row(lt, "flash_attention", _narrow, _narrow_call, what="8 bits", full=None),
    Row(lt, "flash_attention_decode", _ragged, _ragged_call, what="ragged", full=None),
    Row(lt, "flash_attention_decode", _positions, _positions_call, what="positions", full=None),
    Row(lt, "flash_attention_decode", _positions, _spread_keys, what="spread keys", full=None),
    Row(lt, "flash_attention_decode", _codes_of_pages, _codes_call, what="8 bits", full=None),
    Row(lt, "flash_attention_decode", _latent, _latent_call, what="bytes", full=None,
        half=torch.bfloat16),
    Row(lt, "sparse_flash_attention", _two_caches, _two_caches_call, what="two caches", full=None,
        refusal="k_extra is declared"),
    Row(lt, "sparse_flash_attention", lambda n, t: {
            "q": (torch.randn(n, 2, 576) / 8).to(t), "k": _bytes_of_rows(9),
            "lists": torch.randint(-1, 9, (n, 1, 4), dtype=torch.int32)},
        lambda q, k, lists: lt.sparse_flash_attention(
            q, k, None, lists, scale=0.1, row_format="e4m3_656"),
        what="bytes", full=None, half=torch.bfloat16, refusal="k has dtype u8"),
)

ROWS = tuple(row for row in (*KDA, *CONV, *ATTENTION) if NARROW or row.what != "8 bits")
