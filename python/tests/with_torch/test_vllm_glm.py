# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""lathe.compat.vllm_glm against the recurrence in float64: GLM-5's calls, states in slots."""
import pytest
import torch

import lathe
from fla_reference import assert_near
from lathe.compat import vllm_glm
from serving_inputs import A_LOG, BIAS, BOUND, H, K, V, ints, randn, tokens, wanted


def gate_of(given, lower_bound):
    """Returns the logarithm of the decay of raw gates."""
    rate = A_LOG.double().exp().view(H, 1)
    wide = given["raw_g"].double() + BIAS.double().view(H, K)
    if lower_bound is None:
        return -rate * torch.nn.functional.softplus(wide)
    return lower_bound * torch.sigmoid(rate * wide)


@pytest.mark.parametrize("in_kernel", [False, True])
def test_recurrent_with_drafts(in_kernel):
    """Gates and beta may come ready or raw; padding gives 0 and writes nothing."""
    offsets, given, pool = ints(0, 3, 3, 5), tokens(5), randn(9, H, V, K, seed=5)
    slots = torch.tensor([[1, 2, 3], [0, 0, 0], [4, 5, 6]], dtype=torch.int32)
    before, out = pool.clone(), torch.full((1, 5, H, V), 7.0)
    raw = {"g": given["raw_g"], "beta": given["raw_beta"], "sigmoid_beta": True,
           "compute_gate": True, "a_log": A_LOG, "g_bias": BIAS, "lower_bound": -4.0}
    ready = {"g": gate_of(given, -4.0).float(), "beta": given["raw_beta"].sigmoid()}
    o, found = vllm_glm.fused_recurrent_kda(
        given["q"], given["k"], given["v"], **(raw if in_kernel else ready), initial_state=pool,
        cu_seqlens=offsets, ssm_state_indices=slots, num_accepted_tokens=ints(2, 1, 1), out=out)
    assert o is out and found is pool
    for n, first in ((0, 2), (2, 4)):
        for column in range(int(offsets[n + 1] - offsets[n])):
            part = slice(int(offsets[n]), int(offsets[n]) + column + 1)
            y, state = wanted(given, before[first], -4.0, part)
            assert_near(o[0, part], y, BOUND)
            assert_near(pool[slots[n, column]], state, BOUND)
    for slot in (0, 6, 7, 8):
        assert torch.equal(pool[slot], before[slot])


@pytest.mark.parametrize("safe_gate", [False, True])
def test_chunk_with_fused_gate(safe_gate):
    offsets, given, states = ints(0, 70, 70, 100), tokens(100), randn(3, H, V, K, seed=5)
    o, final = vllm_glm.chunk_kda_with_fused_gate(
        given["q"], given["k"], given["v"], given["raw_g"], given["raw_beta"].sigmoid(), A_LOG,
        BIAS, initial_state=states, output_final_state=True, use_qk_l2norm_in_kernel=True,
        cu_seqlens=offsets, safe_gate=safe_gate, lower_bound=-3.0)
    assert torch.equal(final[1], states[1])
    for n in (0, 2):
        part = slice(int(offsets[n]), int(offsets[n + 1]))
        y, state = wanted(given, states[n], -3.0 if safe_gate else None, part)
        assert_near(o[0, part], y, 1e-4)
        assert_near(final[n], state, 1e-4)


def test_refused():
    given, pool = tokens(2), randn(3, H, V, K, seed=5)
    rows = (given["q"], given["k"], given["v"], given["raw_g"])
    with pytest.raises(lathe.Unsupported, match="inplace_final_state is False"):
        vllm_glm.fused_recurrent_kda(*rows, given["raw_beta"], initial_state=pool,
                                     inplace_final_state=False, ssm_state_indices=ints(1, 2))
    with pytest.raises(lathe.InvalidArgument, match="beta is not given"):
        vllm_glm.fused_recurrent_kda(*rows, initial_state=pool, ssm_state_indices=ints(1, 2))
    with pytest.raises(lathe.InvalidArgument, match="compute_gate is True"):
        vllm_glm.fused_recurrent_kda(*rows, given["raw_beta"], initial_state=pool,
                                     ssm_state_indices=ints(1, 2), compute_gate=True)
