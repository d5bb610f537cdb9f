# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""lathe.compat.vllm_kda against the recurrence in float64: Kimi K3's calls, states in slots."""
import pytest
import torch

import lathe
import lathe.torch
from fla_reference import assert_near
from lathe.compat import vllm_kda
from serving_inputs import A_LOG, BIAS, BOUND, H, K, V, ints, randn, tokens, wanted
from signatures import bare

SIGNATURES = {
    "fused_recurrent_kda":
        "(q, k, v, raw_g, raw_beta, A_log, dt_bias, lower_bound, initial_state, cu_seqlens, "
        "ssm_state_indices, num_accepted_tokens=None, out=None, fuse_gate=None)",
    "fused_recurrent_kda_packed_decode":
        "(mixed_qkv, raw_g, raw_beta, A_log, dt_bias, lower_bound, initial_state, state_indices, "
        "scale=None, out=None)",
    "chunk_kda_with_fused_gate":
        "(q, k, v, raw_g, raw_beta, A_log, g_bias, scale=None, initial_state=None, "
        "output_final_state=False, lower_bound=None, use_qk_l2norm_in_kernel=False, "
        "cu_seqlens=None, out=None)",
    "fused_kda_decode":
        "(x, weight, bias, conv_state, raw_g, raw_beta, A_log, dt_bias, state_indices, state, "
        "out=None, lower_bound=None, output_gate=None, norm_weight=None, norm_eps=1e-05)",
    "fused_kda_gate":
        "(g, A, head_k_dim, g_bias=None, beta=1.0, threshold=20.0, lower_bound=None)",
    "fused_sigmoid_gating_delta_rule_update":
        "(A_log, a, b, dt_bias, q, k, v, beta=1.0, threshold=20.0, scale=None, "
        "initial_state=None, inplace_final_state=True, cu_seqlens=None, ssm_state_indices=None, "
        "num_accepted_tokens=None, use_qk_l2norm_in_kernel=False, is_kda=False)",
}
W = 4


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature(name):
    assert bare(getattr(vllm_kda, name)) == SIGNATURES[name]


@pytest.mark.parametrize("lower_bound", [None, -5.0])
@pytest.mark.parametrize("with_out", [False, True])
def test_packed_decode(lower_bound, with_out):
    """Padded rows give 0, and write nothing."""
    slots = [3, 0, 5, -1, 1, 99]
    given, pool = tokens(len(slots)), randn(6, H, V, K, seed=5)
    before = pool.clone()
    mixed = given["q"].as_strided((len(slots), 2 * H * K + H * V), (given["q"].stride(1), 1))
    out = torch.full((1, len(slots), H, V), 7.0) if with_out else None
    lathe.torch.stats(reset=True)
    o, found = vllm_kda.fused_recurrent_kda_packed_decode(
        mixed, given["raw_g"], given["raw_beta"], A_LOG, BIAS, lower_bound, pool, ints(*slots),
        out=out)
    assert lathe.torch.stats() == {} and found is pool and (out is None or o is out)
    for row, slot in enumerate(slots):
        if not 0 < slot < 6:
            assert (o[0, row] == 0).all()
            continue
        y, state = wanted(given, before[slot], lower_bound, slice(row, row + 1))
        assert_near(o[0, row:row + 1], y, BOUND)
        assert_near(pool[slot], state, BOUND)
        before[slot] = pool[slot]
    assert torch.equal(pool, before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_recurrent_with_drafts(dtype):
    """The state after each token has a slot; the call begins behind what was accepted."""
    offsets, given, pool = ints(0, 3, 3, 5), tokens(5), randn(9, H, V, K, seed=5)
    given = {name: each.to(dtype) for name, each in given.items()}
    slots = torch.tensor([[1, 2, 3], [0, 0, 0], [4, 5, 6]], dtype=torch.int32)
    accepted, before, out = torch.tensor([2, 1, 1]), pool.clone(), torch.zeros(1, 5, H, V).to(dtype)
    o, _ = vllm_kda.fused_recurrent_kda(**given, A_log=A_LOG, dt_bias=BIAS, lower_bound=-5.0,
                                        initial_state=pool, cu_seqlens=offsets,
                                        ssm_state_indices=slots, num_accepted_tokens=accepted,
                                        out=out, fuse_gate=False)
    assert o is out
    bound = BOUND if dtype is torch.float32 else 8e-3
    for n, first in ((0, 2), (2, 4)):
        for column in range(int(offsets[n + 1] - offsets[n])):
            part = slice(int(offsets[n]), int(offsets[n]) + column + 1)
            y, state = wanted(given, before[first], -5.0, part)
            assert_near(o[0, part], y, bound)
            assert_near(pool[slots[n, column]], state, BOUND if dtype is torch.float32 else 1e-3)
    for slot in (0, 6, 7, 8):
        assert torch.equal(pool[slot], before[slot])


@pytest.mark.parametrize("lower_bound", [None, -5.0])
def test_chunk_with_fused_gate(lower_bound):
    out = torch.zeros(1, 100, H, V) if lower_bound is None else None
    offsets, given, states = ints(0, 70, 70, 100), tokens(100), randn(3, H, V, K, seed=5)
    o, final = vllm_kda.chunk_kda_with_fused_gate(
        **given, A_log=A_LOG, g_bias=BIAS, initial_state=states, output_final_state=True,
        lower_bound=lower_bound, use_qk_l2norm_in_kernel=True, cu_seqlens=offsets, out=out)
    assert out is None or o is out
    for n in range(3):
        part = slice(int(offsets[n]), int(offsets[n + 1]))
        if part.stop == part.start:
            assert torch.equal(final[n], states[n])
            continue
        y, state = wanted(given, states[n], lower_bound, part)
        assert_near(o[0, part], y, 1e-4)
        assert_near(final[n], state, 1e-4)


def test_flashkda_with_checkpoints():
    """States at a token inside the prefill go to a tensor of their own; others stay."""
    offsets, given, states = ints(0, 70, 100, 104), tokens(104), randn(3, H, V, K, seed=5)
    out, final = torch.zeros(1, 104, H, V), torch.zeros(3, H, V, K)
    kept, places = torch.full((3, H, V, K), 7.0), ints(33, 30, 0)
    lathe.torch.stats(reset=True)
    vllm_kda.flashkda_fwd(given["q"], given["k"], given["v"], given["raw_g"], given["raw_beta"],
                          K**-0.5, out, None, A_LOG, BIAS.view(H, K), -5.0, states, final, offsets,
                          kept, places)
    assert lathe.torch.stats() == {"states copied to slots and back": 1}  # out is written in place
    for n in range(3):
        begin, end = int(offsets[n]), int(offsets[n + 1])
        y, state = wanted(given, states[n], -5.0, slice(begin, end))
        assert_near(out[0, begin:end], y, 1e-4)
        assert_near(final[n], state, 1e-4)
        if places[n] > 0:
            part = slice(begin, begin + int(places[n]))
            assert_near(kept[n], wanted(given, states[n], -5.0, part)[1], 1e-4)
    assert (kept[2] == 7.0).all()


@pytest.mark.parametrize("channels_first", [False, True])
@pytest.mark.parametrize("plain", [False, True], ids=["gated norm", "plain"])
def test_a_decoding_layer(channels_first, plain):
    """One launch where the pool has the channels first, else three calls and torch's norm."""
    slots, D = [3, 0, 2], 2 * H * K + H * V
    x, weight, bias = randn(3, D), randn(3, W, H * K, seed=3) / 2, randn(D, seed=4)
    conv = randn(5, W - 1, D, seed=6).transpose(1, 2)
    conv = conv.contiguous() if channels_first else conv
    pool, g, beta = randn(5, H, V, K, seed=7), randn(1, 3, H, K, seed=8), randn(1, 3, H, seed=9)
    gate, norm = (None, None) if plain else (randn(3, H, V, seed=10), randn(V, seed=11).abs())
    before, held = pool.clone(), conv.clone()
    lathe.torch.stats(reset=True)
    for _ in range(2):  # the filter is transposed once
        conv.copy_(held), pool.copy_(before)
        o = vllm_kda.fused_kda_decode(x, weight, bias, conv, g, beta, A_LOG, BIAS, ints(*slots),
                                      pool, lower_bound=-5.0, output_gate=gate, norm_weight=norm,
                                      norm_eps=1e-6)
    assert lathe.torch.stats() == {"transposed a filter": 1}  # one launch, in either layout
    taps = weight.double().transpose(1, 2).reshape(D, W)
    for row, slot in enumerate(slots):
        if slot == 0:
            assert (o[0, row] == 0).all()
            continue
        seen = torch.cat([held[slot].double(), x[row, :, None].double()], 1)
        mixed = torch.nn.functional.silu((seen * taps).sum(1) + bias.double())
        given = {"q": mixed[:H * K].view(1, 1, H, K), "k": mixed[H * K:2 * H * K].view(1, 1, H, K),
                 "v": mixed[2 * H * K:].view(1, 1, H, V), "raw_g": g[:, row:row + 1],
                 "raw_beta": beta[:, row:row + 1]}
        y, state = wanted(given, before[slot], -5.0)
        if not plain:
            y = y * (y.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * norm.double() \
                * torch.sigmoid(gate[row].double())
        assert_near(o[0, row:row + 1], y, 5e-5)
        assert_near(pool[slot], state, 5e-5)
        assert torch.equal(conv[slot], seen[:, 1:].float())
    for slot in (0, 1, 4):
        assert torch.equal(pool[slot], before[slot]) and torch.equal(conv[slot], held[slot])


@pytest.mark.parametrize("lower_bound", [None, -5.0])
def test_gate_alone(lower_bound):
    g = randn(3, H * K)
    found = vllm_kda.fused_kda_gate(g, A_LOG, K, BIAS, lower_bound=lower_bound)
    raw, rate = (g + BIAS).double().view(3, H, K), A_LOG.double().exp()[:, None]
    y = lower_bound * torch.sigmoid(rate * raw) if lower_bound else \
        -rate * torch.nn.functional.softplus(raw)
    assert_near(found, y, 1e-6)


def test_gated_delta_rule_of_kda():
    given, pool, slots = tokens(2), randn(4, H, V, K, seed=5), ints(2, 0)
    before = pool.clone()
    call = {"A_log": A_LOG, "a": given["raw_g"], "b": given["raw_beta"], "dt_bias": BIAS,
            "q": given["q"], "k": given["k"], "v": given["v"], "initial_state": pool,
            "cu_seqlens": ints(0, 1, 2), "ssm_state_indices": slots,
            "use_qk_l2norm_in_kernel": True}
    o, found = vllm_kda.fused_sigmoid_gating_delta_rule_update(**call, is_kda=True)
    y, state = wanted(given, before[2], None, slice(0, 1))
    assert_near(o[0, :1], y, BOUND)
    assert_near(found[2], state, BOUND)
    assert torch.equal(found[[0, 1, 3]], before[[0, 1, 3]])
    for more, words in (({}, "is_kda is False"), ({"is_kda": True, "beta": 2.0}, "beta is 2.0"),
                        ({"is_kda": True, "inplace_final_state": False}, "inplace_final_state")):
        with pytest.raises(lathe.Unsupported, match=words):
            vllm_kda.fused_sigmoid_gating_delta_rule_update(**call, **more)
