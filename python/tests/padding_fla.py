# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""KDA and fla's convolution, with garbage where nobody is: rows of padding.py's table."""
import torch

import fla_reference
from lathe.compat import fla
from padding import NAN, Row
from padding_conv import BOUND, D, W, ints, outside, randn, slot_mask, taps

MODULES = (fla,)
REASONS = {(fla, "build_cp_context"): "reads the offsets on the host and makes its own of them"}

HV, K, V = 2, 16, 16
OFFSETS = (0, 4, 4, 9, 9, 9)  # the second sequence and the last two have no token
THERE = [0, 2]


def conv_states(garbage):
    x = randn(1, 11, D)
    x[:, 9:] = garbage.number
    states = randn(5, D, W, seed=2)
    states[[1, 3, 4]] = garbage.number
    return {"x": x, **taps(), "states": states, "offsets": ints(*OFFSETS)}


def conv_wanted(x, weight, bias, states, offsets):
    y, final = fla_reference.conv(x.double()[:, :9], weight.double(), bias.double(), None,
                                  states.double(), offsets, True)
    y = torch.cat([y[0], torch.zeros(2, D, dtype=torch.float64)])
    mask = torch.ones(5, dtype=torch.bool)
    mask[THERE] = False
    return y, final.masked_fill(mask[:, None, None], NAN)


def _fla_conv_call(x, weight, bias, states, offsets):
    y, final = fla.causal_conv1d(x, weight, bias, None, states, True, "silu", cu_seqlens=offsets)
    return y[0], final


def tokens_of(garbage, tokens=11, last=9):
    found = {"q": randn(1, tokens, 1, K), "k": randn(1, tokens, 1, K, seed=1) / 4,
             "v": randn(1, tokens, HV, V), "g": -randn(1, tokens, HV, K, seed=3).abs(),
             "beta": torch.rand(1, tokens, HV, generator=torch.Generator().manual_seed(4))}
    for each in found.values():
        each[:, last:] = garbage.number
    return found


def kda_states(garbage):
    states = randn(5, HV, K, V)
    states[[1, 3, 4]] = garbage.number
    return {**tokens_of(garbage), "states": states, "offsets": ints(*OFFSETS)}


def kda_wanted(states, offsets, **tokens):
    tokens = {name: each.double()[:, :9] for name, each in tokens.items()}
    o, final = fla_reference.kda(**tokens, initial_state=states.double(), cu_seqlens=offsets)
    mask = torch.ones(5, dtype=torch.bool)
    mask[THERE] = False
    return (torch.cat([o[0], torch.zeros(2, HV, V, dtype=torch.float64)]),
            final.masked_fill(mask[:, None, None, None], NAN))


def kda_call(function):
    def call(states, offsets, **tokens):
        o, final = function(**tokens, initial_state=states, output_final_state=True,
                            cu_seqlens=offsets)
        return o[0], final
    return call


def served(garbage):
    """Returns sequences with states in slots: the second is padding with tokens."""
    found = tokens_of(garbage, last=10)
    for each in found.values():
        each[:, 4:6] = garbage.number
    pool = randn(6, HV, K, V)
    pool[[0, 1, 3, 4]] = garbage.number
    return {**found, "pool": pool, "slots": ints(5, outside(garbage, 6), 2, -1, garbage.index),
            "offsets": ints(0, 4, 6, 10, 10, 10)}


def served_wanted(pool, slots, offsets, **tokens):
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


def drafted(garbage):
    """Returns rows of slots, one a token, where of the last step's tokens some count."""
    found = served(garbage)
    none = outside(garbage, 12)
    pool = randn(12, HV, K, V)
    pool[[0, 1, 3, 4, 8]] = garbage.number
    slots = torch.tensor([[5, 2, 9, 10], [none] * 4, [11, 7, 6, 0], [none] * 4,
                          [garbage.index] * 4], dtype=torch.int32)
    # Two of the first sequence's tokens count, three of the third's, whose last slot is not known.
    slots[2, 3] = none
    return {**found, "pool": pool, "slots": slots,
            "accepted": ints(2, garbage.length, 3, 0, garbage.length)}


def drafted_wanted(pool, slots, offsets, accepted, **tokens):
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


ROWS = (
    Row(fla, "causal_conv1d", conv_states, _fla_conv_call, conv_wanted,
        gradients=("x", "weight", "bias"), bound=BOUND),
    Row(fla, "chunk_kda", kda_states, kda_call(fla.chunk_kda), kda_wanted,
        gradients=("q", "k", "v", "g", "beta"), bound=1e-4),
    Row(fla, "fused_recurrent_kda", kda_states, kda_call(fla.fused_recurrent_kda), kda_wanted,
        bound=BOUND),
    Row(fla, "fused_recurrent_kda_fwd", served, _served_call, served_wanted,
        lambda pool, **others: slot_mask(5, 2, of=len(pool)), bound=BOUND),
    Row(fla, "fused_recurrent_kda_fwd", drafted, _drafted_call, drafted_wanted,
        lambda pool, **others: slot_mask(5, 2, 9, 10, 11, 7, 6, of=len(pool)), what="drafts",
        bound=BOUND),
)
