# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""KDA and convolution as servers name them, with garbage where nobody is: rows of padding.py."""
import torch

import fla_reference
from lathe.compat import sglang, vllm_kda
from padding import NAN, Row
from padding_conv import (BOUND, KEPT, _columns, _prefill, _prefill_wanted, ints, outside, randn,
                          slot_mask)

MODULES = (sglang, vllm_kda)
_LIKE = "makes the call of a function that has a row, with the same slots"
REASONS = {(sglang, "causal_conv1d_fn_split_qkv"): _LIKE, (sglang, "causal_conv1d_update"): _LIKE,
           (vllm_kda, "fused_sigmoid_gating_delta_rule_update"): _LIKE}

H, K, V = 2, 16, 16
RATE, BIAS = torch.linspace(-1, 1, H), torch.linspace(-1, 1, H * K)


def _tokens(garbage, rows, valid):
    found = {"q": randn(1, rows, H, K), "k": randn(1, rows, H, K, seed=1),
             "v": randn(1, rows, H, V), "raw_g": randn(1, rows, H, K, seed=3),
             "raw_beta": randn(1, rows, H, seed=4)}
    none = torch.ones(rows, dtype=torch.bool)
    none[valid] = False
    for each in found.values():
        each[:, none] = garbage.number
    return found


def _after(tokens, part, state):
    """Returns (o [n,H,V], the state after it) in float64."""
    rows = [tokens[name][:, part].double() for name in ("q", "k", "v", "raw_g", "raw_beta")]
    o, final = fla_reference.kda(*rows, RATE.double(), BIAS.double(), state[None].double(),
                                 gate=True, sigmoid=True, norms=True, lower_bound=-5.0,
                                 state_v_first=True)
    return o[0], final[0]


def _pool(garbage, slots, named):
    pool = randn(slots, H, V, K)
    pool[[slot for slot in range(slots) if slot not in named]] = garbage.number
    return pool


def _null(garbage, slots):
    """Returns an index that is padding to vLLM: none of the pool's, or its null block."""
    return min(outside(garbage, slots), 2**31 - 1) if garbage.index else 0


# ---- one token of each sequence ------------------------------------------------------------------


def _decode(garbage):
    slots = ints(5, _null(garbage, 6), 2, 0)
    tokens = _tokens(garbage, 4, [0, 2])
    return {**tokens, "pool": _pool(garbage, 6, (5, 2)), "slots": slots}


def _decode_wanted(pool, slots, **tokens):
    o, after = torch.zeros(4, H, V, dtype=torch.float64), pool.double()
    for row in (0, 2):
        o[row:row + 1], after[slots[row]] = _after(tokens, slice(row, row + 1), pool[slots[row]])
    return o, after


def _decode_call(pool, slots, q, k, v, raw_g, raw_beta):
    mixed = torch.cat([each[0].flatten(1) for each in (q, k, v)], 1)
    o, found = vllm_kda.fused_recurrent_kda_packed_decode(mixed, raw_g, raw_beta, RATE, BIAS, -5.0,
                                                          pool, slots)
    return o[0], found


# ---- drafts --------------------------------------------------------------------------------------


def _drafts(garbage):
    none = _null(garbage, 12)
    slots = torch.tensor([[5, 2, 9], [none] * 3, [11, 7, none]], dtype=torch.int32)
    return {**_tokens(garbage, 8, [0, 1, 2, 5, 6, 7]), "slots": slots,
            "pool": _pool(garbage, 12, (5, 2, 9, 11, 7)), "offsets": ints(0, 3, 5, 8),
            "accepted": ints(2, garbage.length, 1)}


def _drafts_wanted(pool, slots, offsets, accepted, **tokens):
    o, after = torch.zeros(8, H, V, dtype=torch.float64), pool.double()
    for n, first, row in ((0, 2, (5, 2, 9)), (2, 11, (11, 7))):
        for column in range(3):
            part = slice(int(offsets[n]), int(offsets[n]) + column + 1)
            o[part], state = _after(tokens, part, pool[first])
            if column < len(row):
                after[row[column]] = state
    return o, after


def _drafts_call(pool, slots, offsets, accepted, **tokens):
    o, found = vllm_kda.fused_recurrent_kda(
        **tokens, A_log=RATE, dt_bias=BIAS, lower_bound=-5.0, initial_state=pool,
        cu_seqlens=offsets, ssm_state_indices=slots, num_accepted_tokens=accepted)
    return o[0], found


# ---- prefill -------------------------------------------------------------------------------------


def _chunks(garbage):
    states = randn(4, H, V, K)
    states[[1, 3]] = garbage.number
    return {**_tokens(garbage, 9, list(range(7))), "states": states, "offsets": ints(0, 4, 4, 7, 7)}


def _chunks_wanted(states, offsets, **tokens):
    o = torch.zeros(9, H, V, dtype=torch.float64)
    final = torch.full((4, H, V, K), NAN, dtype=torch.float64)
    for n in (0, 2):
        part = slice(int(offsets[n]), int(offsets[n + 1]))
        o[part], final[n] = _after(tokens, part, states[n])
    return o, final


def _chunks_call(states, offsets, **tokens):
    o, final = vllm_kda.chunk_kda_with_fused_gate(
        **tokens, A_log=RATE, g_bias=BIAS, initial_state=states, output_final_state=True,
        lower_bound=-5.0, use_qk_l2norm_in_kernel=True, cu_seqlens=offsets)
    return o[0], final


def _flash_call(states, offsets, q, k, v, raw_g, raw_beta):
    out, final = torch.zeros(v.shape), torch.zeros(states.shape)
    vllm_kda.flashkda_fwd(q, k, v, raw_g, raw_beta, K**-0.5, out, None, RATE, BIAS, -5.0, states,
                          final, offsets)
    return out[0], final


# ---- a layer -------------------------------------------------------------------------------------


def _layer(garbage):
    D = 2 * H * K + H * V
    x, conv, pool = randn(4, D), randn(6, D, 3, seed=5), _pool(garbage, 6, (5, 2))
    x[[1, 3]] = garbage.number
    conv[[0, 1, 3, 4]] = garbage.number
    return {"x": x, "conv": conv, "pool": pool, "slots": ints(5, _null(garbage, 6), 2, 0),
            "raw_g": randn(1, 4, H, K, seed=3), "raw_beta": randn(1, 4, H, seed=4)}


_TAPS = randn(3, 4, H * K, seed=9) / 2


def _layer_call(x, conv, pool, slots, raw_g, raw_beta):
    o = vllm_kda.fused_kda_decode(x, _TAPS, None, conv, raw_g, raw_beta, RATE, BIAS, slots, pool,
                                  lower_bound=-5.0)
    return o[0], conv, pool


def _layer_wanted(x, conv, pool, slots, raw_g, raw_beta):
    o, states, after = torch.zeros(4, H, V, dtype=torch.float64), conv.double(), pool.double()
    taps = _TAPS.double().transpose(1, 2).flatten(0, 1)
    for row in (0, 2):
        seen = torch.cat([conv[slots[row]], x[row, :, None]], 1).double()
        mixed = torch.nn.functional.silu((seen * taps).sum(1)).split([H * K, H * K, H * V])
        part = {name: each.view(1, 1, H, -1) for name, each in zip("qkv", mixed)}
        part.update(raw_g=raw_g[:, row:row + 1], raw_beta=raw_beta[:, row:row + 1])
        o[row:row + 1], after[slots[row]] = _after(part, slice(0, 1), pool[slots[row]])
        states[slots[row]] = seen[:, 1:]
    return o, states, after


def _conv_call(x, weight, bias, slots, offsets, pool, known):
    y = sglang.causal_conv1d_fn(x.t(), weight, bias, pool, offsets, None, slots, known,
                                pad_slot_id=0)
    return y.t(), pool


ROWS = (
    Row(vllm_kda, "fused_recurrent_kda_packed_decode", _decode, _decode_call, _decode_wanted,
        lambda pool, **others: slot_mask(5, 2, of=len(pool)), bound=BOUND),
    Row(vllm_kda, "fused_recurrent_kda", _drafts, _drafts_call, _drafts_wanted,
        lambda pool, **others: slot_mask(5, 2, 9, 11, 7, of=len(pool)), bound=BOUND),
    Row(vllm_kda, "chunk_kda_with_fused_gate", _chunks, _chunks_call, _chunks_wanted, bound=1e-4),
    Row(vllm_kda, "flashkda_fwd", _chunks, _flash_call, _chunks_wanted, bound=1e-4),
    Row(vllm_kda, "fused_kda_decode", _layer, _layer_call, _layer_wanted,
        lambda conv, pool, **others: {"conv": slot_mask(5, 2, of=6)["pool"],
                                      **slot_mask(5, 2, of=6)}, bound=5e-5),
    Row(sglang, "causal_conv1d_fn", _prefill, _conv_call, _prefill_wanted,
        lambda pool, **others: _columns(pool, 3, 1, 5, first=KEPT), bound=BOUND),
)
