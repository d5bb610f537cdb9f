# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Convolution and KDA by the peers' names, with garbage where nobody is: rows of padding.py's table.
"""
import torch

import fla_reference
from lathe.compat import causal_conv1d, fla, vllm_conv
from padding import NAN, Row

MODULES = (causal_conv1d, fla, vllm_conv)
REASONS = {(fla, "build_cp_context"): "reads the offsets on the host and makes its own of them"}

D, W = 24, 4
KEPT = W - 1
BOUND = 1e-5


def _ints(*values):
    return torch.tensor(values, dtype=torch.int32)


def _random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def _filter():
    return {"weight": _random(D, W) / 2, "bias": _random(D)}


def _outside(garbage, size):
    """Returns an index that is no place of a pool: the garbage, or -1 where it is one."""
    return garbage.index if not 0 <= garbage.index < size else -1


def _convolved(x, weight, bias, before):
    """Returns (y, before and x) of one sequence x [n,D] behind before [W-1,D], in float64."""
    seen = torch.cat([before.double(), x.double()])
    y = bias.double() + sum(seen[i:i + len(x)] * weight.double()[:, i] for i in range(W))
    return y * y.sigmoid(), seen


def _pool(garbage, slots, columns, named):
    """Returns states [S,D,L], channel-last; slots that are not named hold garbage."""
    pool = _random(slots, columns, D, seed=1)
    for slot in set(range(slots)) - set(named):
        pool[slot] = garbage.number
    return pool.transpose(1, 2)


def _slots(*numbers, of):
    mask = torch.zeros(of, dtype=torch.bool)
    mask[list(numbers)] = True
    return {"pool": mask}


# ---- causal_conv1d -------------------------------------------------------------------------------


def _numbered(garbage):
    """Returns x [B,T,D] and seq_idx [B,T] with tokens of nobody before, between and behind."""
    number = min(garbage.index, -1) if garbage.index < 2**31 - 1 else -1
    seq_idx = _ints(0, 0, 0, number, number, 1, 1, number, number, 0, 0, 0, 0, 4, 4, 7)
    x = _random(2, 8, D)
    x.view(16, D)[seq_idx < 0] = garbage.number
    return {"x": x, **_filter(), "seq_idx": seq_idx.view(2, 8)}


def _numbered_wanted(x, weight, bias, seq_idx):
    y = [torch.zeros(1, D, dtype=torch.float64)] * 16
    for begin, end in ((0, 3), (5, 7), (9, 13), (13, 15), (15, 16)):
        part, _ = _convolved(x.flatten(0, 1)[begin:end], weight, bias, x.new_zeros(KEPT, D))
        y[begin:end] = part.split(1)
    return torch.cat(y),


def _numbered_call(x, weight, bias, seq_idx):
    y = causal_conv1d.causal_conv1d_fn(x.transpose(1, 2), weight, bias, seq_idx, activation="silu")
    return y.transpose(1, 2).flatten(0, 1),


def _steps(tokens, columns):
    """Returns a maker of tokens x [B,D,T] and states in slots, of which two rows have none."""
    def made(garbage):
        x = _random(4, tokens, D).transpose(1, 2)
        x[1], x[3] = garbage.number, garbage.number
        return {"x": x, **_filter(), "pool": _pool(garbage, 6, columns, (4, 2)),
                "slots": _ints(4, _outside(garbage, 6), 2, -1),
                "taken": _ints(3, garbage.length, 7, garbage.length)}
    return made


def _steps_wanted(ring):
    def wanted(x, weight, bias, pool, slots, taken):
        y, after = torch.zeros(x.shape, dtype=torch.float64), pool.double()
        columns = pool.shape[2]
        for row, slot in ((0, 4), (2, 2)):
            # The columns of a ring in order, the oldest first.
            order = [(int(taken[row]) + i) % columns for i in range(columns)] if ring \
                else list(range(columns))
            state = pool[slot][:, order].t()
            found, seen = _convolved(x[row].t(), weight, bias, state[columns - KEPT:])
            y[row] = found.t()
            rolled = torch.cat([state.double(), x[row].t().double()])[-columns:]
            shift = x.shape[2] % columns if ring else 0
            for i, place in enumerate(order[shift:] + order[:shift]):
                after[slot][:, place] = rolled[i]
        return y, after
    return wanted


def _steps_call(ring):
    def call(x, weight, bias, pool, slots, taken):
        x = x.squeeze(2) if x.shape[2] == 1 else x
        y = causal_conv1d.causal_conv1d_update(x, pool, weight, bias, "silu",
                                               taken if ring else None, slots)
        return y.view(4, D, -1), pool
    return call


def _steps_named(pool, **others):
    return _slots(4, 2, of=len(pool))


def _packed(garbage):
    """Returns packed x [T,D] with two rows past the last offset, and empty sequences."""
    x = _random(12, D)
    x[10:] = garbage.number
    return {"x": x, "offsets": _ints(0, 1, 1, 6, 10, 10, 10)}


def _last_wanted(x, offsets):
    found = torch.zeros(6, D, 5, dtype=torch.float64)
    for n, (begin, end) in enumerate(zip(offsets.tolist(), offsets[1:].tolist())):
        kept = min(5, end - begin)
        found[n, :, 5 - kept:] = x[end - kept:end].t()
    return found,


def _update_rows(what, tokens, columns, ring=False):
    return Row(causal_conv1d, "causal_conv1d_update", _steps(tokens, columns), _steps_call(ring),
               _steps_wanted(ring), _steps_named, what=what, bound=BOUND)


CONV = (
    Row(causal_conv1d, "causal_conv1d_fn", _numbered, _numbered_call, _numbered_wanted,
        gradients=("x", "weight", "bias"), bound=BOUND),
    _update_rows("one token", 1, W), _update_rows("one token, W - 1 slots", 1, KEPT),
    _update_rows("tokens", 3, 6), _update_rows("ring", 1, W, True),
    _update_rows("tokens of a ring", 6, W, True),
    Row(causal_conv1d, "causal_conv1d_varlen_states", _packed,
        lambda x, offsets: (causal_conv1d.causal_conv1d_varlen_states(x, offsets, 5),),
        _last_wanted),
)

# ---- vLLM's pools --------------------------------------------------------------------------------

NULL = 0  # the block that is padding


def _sequences(garbage, slots):
    """Returns packed x [T,D] of five sequences, of which those of nobody may have tokens."""
    x = _random(15, D)
    x[5:7], x[13:] = garbage.number, garbage.number
    return {"x": x, **_filter(), "slots": slots,
            "offsets": _ints(0, 5, 7, 7, 12, 13, 13, 13)}


def _prefill(garbage):
    # The second sequence is padding with tokens, the third and the last two have none.
    slots = _ints(3, garbage.index if garbage.index not in (1, 3, 5) else NULL, 4, 1, 5,
                  garbage.index, NULL)
    known = torch.tensor([True, True, False, False, True, garbage.length > 0, True])
    return {**_sequences(garbage, slots), "pool": _pool(garbage, 8, KEPT + 2, (3, 1, 5)),
            "known": known}


def _prefill_wanted(x, weight, bias, slots, offsets, pool, known):
    y, after = torch.full((15, D), NAN, dtype=torch.float64), pool.double()
    for n, slot in ((0, 3), (3, 1), (4, 5)):
        begin, end = offsets[n], offsets[n + 1]
        before = pool[slot, :, :KEPT].t() if known[n] else torch.zeros(KEPT, D)
        y[begin:end], seen = _convolved(x[begin:end], weight, bias, before)
        after[slot, :, :KEPT] = seen[-KEPT:].t()
    return y, after


def _prefill_call(x, weight, bias, slots, offsets, pool, known):
    y = vllm_conv.causal_conv1d_fn(x.t(), weight, bias, pool, offsets, slots, known,
                                   null_block_id=NULL)
    return y.t(), pool


def _columns(pool, *slots, first):
    """Returns a mask of the first columns of slots."""
    mask = torch.zeros(pool.shape, dtype=torch.bool)
    mask[list(slots), :, :first] = True
    return {"pool": mask}


def _drafts(tokens, columns, most):
    """Returns a maker of a step of `tokens` of each row; of the last step's, some count."""
    def made(garbage):
        x = _random(5, tokens, D).transpose(1, 2)
        x[[1, 3, 4]] = garbage.number
        return {"x": x, **_filter(), "pool": _pool(garbage, 8, columns, (6, 2)),
                "slots": _ints(6, garbage.index if garbage.index not in (2, 6) else NULL, 2, NULL,
                               _outside(garbage, 8)) if garbage.index != 3
                else _ints(6, NULL, 2, NULL, -1),
                "accepted": _ints(most, garbage.length, 1, 0, garbage.length)}
    return made


def _drafts_wanted(drafts):
    def wanted(x, weight, bias, pool, slots, accepted):
        y, after = torch.zeros(x.shape, dtype=torch.float64), pool.double()
        for row in (0, 2):
            slot, first = slots[row], accepted[row] - 1 if drafts else 0
            before = pool[slot, :, first:first + KEPT].t()
            found, seen = _convolved(x[row].t(), weight, bias, before)
            y[row] = found.t()
            kept = seen[1:] if drafts else seen[-KEPT:]
            after[slot, :, :len(kept)] = kept.t()
        return y, after
    return wanted


def _drafts_call(drafts):
    def call(x, weight, bias, pool, slots, accepted):
        x = x.squeeze(2) if x.shape[2] == 1 else x
        y = vllm_conv.causal_conv1d_update(x, pool, weight, bias, True, slots,
                                           accepted if drafts else None, null_block_id=NULL)
        return y.view(5, D, -1), pool
    return call


def _drafts_named(drafts):
    def named(x, pool, **others):
        return _columns(pool, 6, 2, first=KEPT - 1 + x.shape[2] if drafts else KEPT)
    return named


def _packed_drafts(garbage):
    """As _prefill, with counts, of which those of padding are garbage."""
    found = _prefill(garbage)
    del found["known"]
    return {**found, "pool": _pool(garbage, 8, KEPT + 6, (3, 1, 5)),
            "accepted": _ints(3, garbage.length, garbage.length, 1, 2, 0, garbage.length)}


def _packed_drafts_wanted(drafts):
    def wanted(x, weight, bias, slots, offsets, pool, accepted):
        y, after = torch.full((15, D), NAN, dtype=torch.float64), pool.double()
        for n, slot in ((0, 3), (3, 1), (4, 5)):
            begin, end, first = offsets[n], offsets[n + 1], accepted[n] - 1 if drafts else 0
            before = pool[slot, :, first:first + KEPT].t()
            y[begin:end], seen = _convolved(x[begin:end], weight, bias, before)
            kept = seen[1:] if drafts else seen[-KEPT:]
            after[slot, :, :len(kept)] = kept.t()
        return y, after
    return wanted


def _packed_drafts_call(drafts, most):
    def call(x, weight, bias, slots, offsets, pool, accepted):
        return vllm_conv.causal_conv1d_update(
            x, pool, weight, bias, True, slots, accepted if drafts else None, offsets, most,
            null_block_id=NULL), pool
    return call


def _packed_named(drafts):
    def named(pool, **others):
        return _columns(pool, 3, 1, 5, first=KEPT + 4 if drafts else KEPT)
    return named


VLLM = (
    Row(vllm_conv, "causal_conv1d_fn", _prefill, _prefill_call, _prefill_wanted,
        lambda pool, **others: _columns(pool, 3, 1, 5, first=KEPT), bound=BOUND),
    *(Row(vllm_conv, "causal_conv1d_update", _drafts(tokens, columns, most), _drafts_call(drafts),
          _drafts_wanted(drafts), _drafts_named(drafts), what=what, bound=BOUND)
      for what, tokens, columns, most, drafts in (
          ("one token", 1, KEPT, 1, False), ("tokens", 5, W, 1, False),
          ("drafts", 3, KEPT + 3, 3, True), ("one draft", 1, KEPT, 1, True))),
    *(Row(vllm_conv, "causal_conv1d_update", _packed_drafts, _packed_drafts_call(drafts, most),
          _packed_drafts_wanted(drafts), _packed_named(drafts), what=what, bound=BOUND)
      for what, most, drafts in (
          ("packed", 5, False), ("packed drafts", 5, True), ("wrong max_query_len", 1, True),
          ("no max_query_len", -1, True))),
)

# ---- flash-linear-attention ----------------------------------------------------------------------

HV, K, V = 2, 16, 16
OFFSETS = (0, 4, 4, 9, 9, 9)  # the second sequence and the last two have no token
THERE = [0, 2]


def _fla_conv(garbage):
    x = _random(1, 11, D)
    x[:, 9:] = garbage.number
    states = _random(5, D, W, seed=2)
    states[[1, 3, 4]] = garbage.number
    return {"x": x, **_filter(), "states": states, "offsets": _ints(*OFFSETS)}


def _fla_conv_wanted(x, weight, bias, states, offsets):
    y, final = fla_reference.conv(x.double()[:, :9], weight.double(), bias.double(), None,
                                  states.double(), offsets, True)
    y = torch.cat([y[0], torch.zeros(2, D, dtype=torch.float64)])
    mask = torch.ones(5, dtype=torch.bool)
    mask[THERE] = False
    return y, final.masked_fill(mask[:, None, None], NAN)


def _fla_conv_call(x, weight, bias, states, offsets):
    y, final = fla.causal_conv1d(x, weight, bias, None, states, True, "silu", cu_seqlens=offsets)
    return y[0], final


def _kda(garbage, tokens=11, last=9):
    found = {"q": _random(1, tokens, 1, K), "k": _random(1, tokens, 1, K, seed=1) / 4,
             "v": _random(1, tokens, HV, V), "g": -_random(1, tokens, HV, K, seed=3).abs(),
             "beta": torch.rand(1, tokens, HV, generator=torch.Generator().manual_seed(4))}
    for each in found.values():
        each[:, last:] = garbage.number
    return found


def _kda_states(garbage):
    states = _random(5, HV, K, V)
    states[[1, 3, 4]] = garbage.number
    return {**_kda(garbage), "states": states, "offsets": _ints(*OFFSETS)}


def _kda_wanted(states, offsets, **tokens):
    tokens = {name: each.double()[:, :9] for name, each in tokens.items()}
    o, final = fla_reference.kda(**tokens, initial_state=states.double(), cu_seqlens=offsets)
    mask = torch.ones(5, dtype=torch.bool)
    mask[THERE] = False
    return (torch.cat([o[0], torch.zeros(2, HV, V, dtype=torch.float64)]),
            final.masked_fill(mask[:, None, None, None], NAN))


def _kda_call(function):
    def call(states, offsets, **tokens):
        o, final = function(**tokens, initial_state=states, output_final_state=True,
                            cu_seqlens=offsets)
        return o[0], final
    return call


def _served(garbage):
    """Returns sequences with states in slots: the second is padding with tokens."""
    found = _kda(garbage, last=10)
    for each in found.values():
        each[:, 4:6] = garbage.number
    pool = _random(6, HV, K, V)
    pool[[0, 1, 3, 4]] = garbage.number
    return {**found, "pool": pool, "slots": _ints(5, _outside(garbage, 6), 2, -1, garbage.index),
            "offsets": _ints(0, 4, 6, 10, 10, 10)}


def _served_wanted(pool, slots, offsets, **tokens):
    o, after = torch.zeros(11, HV, V, dtype=torch.float64), pool.double()
    for n, slot in ((0, 5), (2, 2)):
        begin, end = offsets[n], offsets[n + 1]
        part = {name: each.double()[:, begin:end] for name, each in tokens.items()}
        found, state = fla_reference.kda(**part, initial_state=pool[slot:slot + 1].double())
        o[begin:end], after[slot] = found[0], state[0]
    return o, after


def _served_call(pool, slots, offsets, **tokens):
    o, found = fla.fused_recurrent_kda_fwd(**tokens, initial_state=pool, cu_seqlens=offsets,
                                           ssm_state_indices=slots)
    return o[0], found


def _drafted(garbage):
    """Returns rows of slots, one a token, where of the last step's tokens some count."""
    found = _served(garbage)
    none = _outside(garbage, 12)
    pool = _random(12, HV, K, V)
    pool[[0, 1, 3, 4, 8]] = garbage.number
    slots = torch.tensor([[5, 2, 9, 10], [none] * 4, [11, 7, 6, 0], [none] * 4,
                          [garbage.index] * 4], dtype=torch.int32)
    # Two of the first sequence's tokens count, three of the third's, whose fourth slot is not known.
    slots[2, 3] = none
    return {**found, "pool": pool, "slots": slots,
            "accepted": _ints(2, garbage.length, 3, 0, garbage.length)}


def _drafted_wanted(pool, slots, offsets, accepted, **tokens):
    o, after = torch.zeros(11, HV, V, dtype=torch.float64), pool.double()
    for n, row, first in ((0, (5, 2, 9, 10), 2), (2, (11, 7, 6), 6)):
        for column in range(4):
            begin, end = offsets[n], offsets[n] + column + 1
            part = {name: each.double()[:, begin:end] for name, each in tokens.items()}
            found, state = fla_reference.kda(**part, initial_state=pool[first:first + 1].double())
            o[begin:end] = found[0]
            if column < len(row):
                after[row[column]] = state[0]
    return o, after


def _drafted_call(pool, slots, offsets, accepted, **tokens):
    o, found = fla.fused_recurrent_kda_fwd(**tokens, initial_state=pool, cu_seqlens=offsets,
                                           ssm_state_indices=slots, num_accepted_tokens=accepted)
    return o[0], found


FLA = (
    Row(fla, "causal_conv1d", _fla_conv, _fla_conv_call, _fla_conv_wanted,
        gradients=("x", "weight", "bias"), bound=BOUND),
    Row(fla, "chunk_kda", _kda_states, _kda_call(fla.chunk_kda), _kda_wanted,
        gradients=("q", "k", "v", "g", "beta"), bound=1e-4),
    Row(fla, "fused_recurrent_kda", _kda_states, _kda_call(fla.fused_recurrent_kda), _kda_wanted,
        bound=BOUND),
    Row(fla, "fused_recurrent_kda_fwd", _served, _served_call, _served_wanted,
        lambda pool, **others: _slots(5, 2, of=len(pool)), bound=BOUND),
    Row(fla, "fused_recurrent_kda_fwd", _drafted, _drafted_call, _drafted_wanted,
        lambda pool, **others: _slots(5, 2, 9, 10, 11, 7, 6, of=len(pool)), what="drafts",
        bound=BOUND),
)

ROWS = (*CONV, *VLLM, *FLA)
