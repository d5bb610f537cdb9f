# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""States in slots by lathe.torch, with garbage where nobody is: rows of padding.py's table."""
import torch

import fla_reference
import lathe.torch as lt
import padding_conv as conv
import padding_fla as kda
from padding import Row
from padding_conv import BOUND, KEPT, NULL, ints, outside, randn, slot_mask

HV, K, V = kda.HV, kda.K, kda.V

# ---- the tables of the peers ---------------------------------------------------------------------


def _kda_pool(function):
    def call(pool, slots, offsets, accepted=None, **tokens):
        counts = {} if accepted is None else {"num_accepted_tokens": accepted}
        o = function(**tokens, state_pool=pool, state_indices=slots, cu_seqlens=offsets,
                     **counts)[0]
        return o[0], pool
    return call


def _conv_states(x, weight, bias, states, offsets):
    y, final = lt.causal_conv1d(x, weight, bias, initial_state=states, cu_seqlens=offsets,
                                activation="silu", output_final_state=True)
    return y[0], final


def _contiguous(make):
    """Returns a maker whose slots have their columns one after another, as lathe.torch's have."""
    def made(garbage):
        found = make(garbage)
        return {**found, "pool": found["pool"].contiguous()}
    return made


def _update(ring=False, drafts=False, null=-1):
    def call(x, weight, bias, pool, slots, **counts):
        given = {"cu_seqlens": counts["offsets"]} if "offsets" in counts else {}
        if ring:
            given["cache_seqlens"] = counts["taken"]
        if drafts:
            given["num_accepted_tokens"] = counts["accepted"]
        rows = x if given.get("cu_seqlens") is not None else x.transpose(1, 2)
        y = lt.causal_conv1d_update(rows, pool, weight, bias, state_indices=slots, null_slot=null,
                                    activation="silu", **given)
        return y if rows is x else y.transpose(1, 2), pool
    return call


def _zeros_for_nobody(wanted):
    """Returns a function of what is wanted where rows of nobody are 0, and not anything."""
    def made(**given):
        y, after = wanted(**given)
        return y.nan_to_num(0.0), after
    return made


def _steps(what, tokens, columns, ring=False):
    return Row(lt, "causal_conv1d_update", _contiguous(conv.steps(tokens, columns)),
               _update(ring=ring), conv.steps_wanted(ring), conv.steps_named, what=what,
               bound=BOUND)


SAME = (
    Row(lt, "causal_conv1d", kda.conv_states, _conv_states, kda.conv_wanted,
        gradients=("x", "weight", "bias"), bound=BOUND),
    Row(lt, "kda", kda.kda_states, kda.kda_call(lambda **t: lt.kda(**t)[:2]), kda.kda_wanted,
        gradients=("q", "k", "v", "g", "beta"), bound=1e-4),
    Row(lt, "kda", kda.served, _kda_pool(lt.kda), kda.served_wanted,
        lambda pool, **others: slot_mask(5, 2, of=len(pool)), what="pool", bound=1e-4),
    Row(lt, "kda_recurrent", kda.served, _kda_pool(lt.kda_recurrent), kda.served_wanted,
        lambda pool, **others: slot_mask(5, 2, of=len(pool)), what="pool", bound=BOUND),
    Row(lt, "kda_recurrent", kda.drafted, _kda_pool(lt.kda_recurrent), kda.drafted_wanted,
        lambda pool, **others: slot_mask(5, 2, 9, 10, 11, 7, 6, of=len(pool)), what="drafts",
        bound=BOUND),
    _steps("slots", 3, 6), _steps("W - 1 columns", 1, KEPT), _steps("ring", 6, conv.W, True),
    Row(lt, "causal_conv1d_update", _contiguous(conv.drafts_of(3, KEPT + 3, 3)),
        _update(drafts=True, null=NULL), conv.drafts_wanted(True), conv.drafts_named(True),
        what="drafts", bound=BOUND),
    Row(lt, "causal_conv1d_update", _contiguous(conv.packed_drafts),
        _update(drafts=True, null=NULL),
        _zeros_for_nobody(conv.packed_drafts_wanted(True)), conv.packed_named(True),
        what="packed drafts", bound=BOUND),
)

# ---- sources and checkpoints ---------------------------------------------------------------------

# The first sequence starts from slot 2, the third from nothing, the others are nobody's.
OFFSETS, SLOTS = (0, 4, 6, 10, 10, 10), (5, 6)


def _sources(garbage):
    found = kda.tokens_of(garbage, last=10)
    for each in found.values():
        each[:, 4:6] = garbage.number
    pool = randn(8, HV, K, V)
    pool[[0, 1, 3, 4, 5, 6, 7]] = garbage.number  # slot 2 alone is read
    none = outside(garbage, 8)
    return {**found, "pool": pool, "slots": ints(5, none, 6, -1, none),
            "sources": ints(2, garbage.index, garbage.index, garbage.index, garbage.index),
            "known": ints(1, garbage.length, 0, garbage.length, garbage.length),
            "offsets": ints(*OFFSETS)}


def _checkpoints(garbage):
    """As _sources, with states that are kept on the way; one of them is of nobody's sequence."""
    return {**_sources(garbage), "ends": ints(0, 2, 3, 4, 4, 4),
            "after": ints(2, 0, garbage.length, 4),
            "kept": ints(7, outside(garbage, 8), 1, 4)}


def _sources_wanted(checkpoints):
    def wanted(pool, sources, known, offsets, slots, ends=None, after=None, kept=None, **tokens):
        o, states = torch.zeros(11, HV, V, dtype=torch.float64), pool.double()
        for n, slot, before in ((0, 5, pool[2:3]), (2, 6, torch.zeros(1, HV, K, V))):
            for count in range(1, 5):
                at = slice(int(offsets[n]), int(offsets[n]) + count)
                part = {name: each.double()[:, at] for name, each in tokens.items()}
                found, state = fla_reference.kda(**part, initial_state=before.double())
                if checkpoints and (n, count) in ((0, 2), (2, 4)):
                    states[7 if n == 0 else 4] = state[0]
            o[at], states[slot] = found[0], state[0]
        return o, states
    return wanted


def _sources_call(function):
    def call(pool, slots, sources, known, offsets, ends=None, after=None, kept=None, **tokens):
        given = {} if ends is None else {"cu_checkpoints": ends, "checkpoint_tokens": after,
                                         "checkpoint_slots": kept}
        o = function(**tokens, state_pool=pool, state_indices=slots, source_indices=sources,
                     has_initial_state=known, cu_seqlens=offsets, **given)[0]
        return o[0], pool
    return call


SOURCES = (
    Row(lt, "kda", _checkpoints, _sources_call(lt.kda), _sources_wanted(True),
        lambda pool, **others: slot_mask(5, 6, 7, 4, of=len(pool)), what="checkpoints",
        bound=1e-4),
    Row(lt, "kda_recurrent", _sources, _sources_call(lt.kda_recurrent), _sources_wanted(False),
        lambda pool, **others: slot_mask(5, 6, of=len(pool)), what="sources", bound=BOUND),
)

# ---- records in rings ----------------------------------------------------------------------------

LENGTH = 8
COUNTS = {5: 2, 2: 6}  # of the slots in use; in slot 2 four tokens more have no room
RINGS = ("ring_k", "ring_u", "ring_g", "ring_count")


def _rings(garbage):
    found = kda.served(garbage)
    found["slots"] = ints(5, outside(garbage, 6), 2, -1, outside(garbage, 6))
    shapes = {"ring_k": (1, K), "ring_u": (HV, V), "ring_g": (HV, K)}
    rings = {name: randn(6, LENGTH, *shape, seed=9) / 4 for name, shape in shapes.items()}
    rings["ring_g"] = -rings["ring_g"].abs()
    counts = ints(*[COUNTS.get(slot, garbage.length) for slot in range(6)])
    for each in rings.values():
        for slot in range(6):
            each[slot, COUNTS.get(slot, 0):] = garbage.number
    return {**found, **rings, "ring_count": counts}


def _record(state, k, u, g):
    """Returns a state after a token that is recorded: k [H,K], u [HV,V], g [HV,K]."""
    return state * g.exp()[..., None] + k.expand(HV, K)[..., None] * u[:, None]


def _rings_wanted(pool, slots, offsets, q, k, v, g, beta, ring_count, **rings):
    o, states = torch.zeros(11, HV, V, dtype=torch.float64), pool.double()
    after = {name: each.double() for name, each in rings.items()}
    counts = ring_count.double()
    q, k, v, g, beta = (each.double()[0] for each in (q, k, v, g, beta))
    for n, slot in ((0, 5), (2, 2)):
        count, begin = COUNTS[slot], int(offsets[n])
        state = states[slot]
        for i in range(count):
            state = _record(state, *(rings[name][slot, i].double() for name in RINGS[:3]))
        if count + 4 > LENGTH:
            states[slot], count = state, 0
        for t in range(4):
            row = begin + t
            decayed = state * g[row].exp()[..., None]
            held = torch.einsum("k,hkv->hv", k[row, 0], decayed)
            u = beta[row][:, None] * (v[row] - held)
            state = _record(state, k[row], u, g[row])
            o[row] = torch.einsum("k,hkv->hv", q[row, 0] * K**-0.5, state)
            for name, each in zip(RINGS, (k[row], u, g[row])):
                after[name][slot, count + t] = each
        counts[slot] = count + 4
    return o, states, *after.values(), counts


def _rings_named(pool, ring_k, **others):
    records = torch.zeros(ring_k.shape[:2], dtype=torch.bool)
    records[5, 2:6], records[2, :4] = True, True
    return {**slot_mask(2, of=len(pool)), **dict.fromkeys(RINGS[:3], records),
            "ring_count": slot_mask(5, 2, of=len(pool))["pool"]}


def _rings_call(pool, slots, offsets, q, k, v, g, beta, **rings):
    o, _ = lt.kda_recurrent(q, k, v, g, beta, cu_seqlens=offsets, state_pool=pool,
                            state_indices=slots, **rings)
    return o[0], pool, *rings.values()


# ---- a decoding step of a layer ------------------------------------------------------------------

TAPS = (1 + 1 + HV) * K


def _layer(garbage):
    """Returns a step of four sequences, of which two are nobody's; the second reads slot 1."""
    found = {"qkv": randn(4, TAPS), "g": -randn(4, HV, K).abs(),
             "beta": torch.rand(4, HV, generator=torch.Generator().manual_seed(4)),
             "output_gate": randn(4, HV, V, seed=2)}
    for each in found.values():
        each[[0, 3]] = garbage.number
    pools = {"conv_pool": randn(6, TAPS, KEPT), "pool": randn(6, HV, K, V)}
    for each in pools.values():
        each[[0, 2, 3, 4]] = garbage.number  # slots 1 and 5 are read
    return {**found, **pools, "weight": randn(TAPS, conv.W) / 2, "bias": randn(TAPS),
            "norm": randn(V).abs(), "slots": ints(outside(garbage, 6), 2, 5, -1),
            "sources": ints(garbage.index, 1, 5, garbage.index)}


def _layer_wanted(qkv, g, beta, output_gate, conv_pool, pool, weight, bias, norm, slots, sources):
    o = torch.zeros(4, HV, V, dtype=torch.float64)
    columns, states = conv_pool.double(), pool.double()
    for n, slot, source in ((1, 2, 1), (2, 5, 5)):
        seen = torch.cat([columns[source], qkv[n].double()[:, None]], 1)
        taps = (seen * weight.double()).sum(1) + bias.double()
        q, k, v = (taps * taps.sigmoid()).split([K, K, HV * V])
        found, state = fla_reference.kda(
            q.view(1, 1, 1, K), k.view(1, 1, 1, K), v.view(1, 1, HV, V), g[n].double()[None, None],
            beta[n].double()[None, None], initial_state=states[source][None], norms=True)
        row = found[0, 0]
        row = row * (row.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * norm.double()
        o[n] = row * output_gate[n].double().sigmoid()
        columns[slot], states[slot] = seen[:, 1:], state[0]
    return o, columns, states


def _layer_call(qkv, g, beta, output_gate, conv_pool, pool, weight, bias, norm, slots, sources):
    o = lt.kda_decode(qkv, weight, conv_pool, g, beta, pool, slots, source_indices=sources,
                      conv_bias=bias, output_gate=output_gate, norm_weight=norm,
                      use_qk_l2norm_in_kernel=True)
    return o, conv_pool, pool


def _layer_named(pool, **others):
    named = slot_mask(2, 5, of=len(pool))["pool"]
    return {"pool": named, "conv_pool": named}


ROWS = (
    *SAME, *SOURCES,
    Row(lt, "kda_recurrent", _rings, _rings_call, _rings_wanted, _rings_named, what="rings",
        bound=BOUND),
    Row(lt, "kda_decode", _layer, _layer_call, _layer_wanted, _layer_named, bound=1e-4),
)
