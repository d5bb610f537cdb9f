# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""fused_recurrent_kda and its _fwd of lathe.compat.fla: states in place and in pools."""
import pytest
import torch

import golden
import lathe.torch
from fla_reference import assert_near, doubled, kda
from lathe.compat.fla import fused_recurrent_kda, fused_recurrent_kda_fwd
from tensors import to_numpy, to_torch

_BOUND = 1e-5


def made(B=2, T=9, H=1, HV=2, K=32, V=40, N=None, dtype=torch.float32):
    torch.manual_seed(11)
    tensors = {"q": torch.randn(B, T, H, K), "k": torch.randn(B, T, H, K) / K**0.5,
               "v": torch.randn(B, T, HV, V), "g": -torch.rand(B, T, HV, K),
               "beta": torch.rand(B, T, HV)}
    tensors = {name: each.to(dtype) for name, each in tensors.items()}
    return {**tensors, "initial_state": torch.randn(N or B, HV, K, V)}


def test_values_and_no_gradients():
    tensors = {name: each.requires_grad_() for name, each in made().items()}
    o, final = fused_recurrent_kda(**tensors, output_final_state=True, use_qk_l2norm_in_kernel=True)
    assert not o.requires_grad and not final.requires_grad
    wanted_o, wanted_final = kda(**doubled(tensors), norms=True)
    assert_near(o, wanted_o, _BOUND)
    assert_near(final, wanted_final, _BOUND)
    assert fused_recurrent_kda(**tensors)[1] is None


def test_the_gate_and_the_sigmoid_in_the_kernel():
    tensors = made(V=32)
    A_log, dt_bias = torch.rand(1, 1, 2, 1).bfloat16(), torch.randn(2, 32)
    lathe.torch.stats(reset=True)
    o, final = fused_recurrent_kda(
        **tensors, A_log=A_log, dt_bias=dt_bias, output_final_state=True, use_gate_in_kernel=True,
        use_beta_sigmoid_in_kernel=True, allow_neg_eigval=True, lower_bound=-3.0,
        state_v_first=True, scale=0.5)
    assert lathe.torch.stats(reset=True) == {"cast to float32": 1}
    exact = {**doubled(tensors), "A_log": A_log.double(), "dt_bias": dt_bias.double()}
    wanted_o, wanted_final = kda(**exact, gate=True, sigmoid=True, negative=True, lower_bound=-3.0,
                                 state_v_first=True, scale=0.5)
    assert_near(o, wanted_o, _BOUND)
    assert_near(final, wanted_final, _BOUND)


def test_packed_with_rows_past_the_end():
    tensors = made(B=1, N=3)
    offsets = torch.tensor([0, 4, 4, 7])
    o, final = fused_recurrent_kda(**tensors, cu_seqlens=offsets, output_final_state=True)
    wanted_o, wanted_final = kda(**doubled(tensors), cu_seqlens=offsets)
    assert_near(o[:, :7], wanted_o, _BOUND)
    assert_near(final, wanted_final, _BOUND)
    assert not o[:, 7:].any()


def test_a_state_of_sixteen_bits_is_cast():
    tensors = made()
    state = tensors.pop("initial_state").bfloat16()
    o, _ = fused_recurrent_kda(**tensors, initial_state=state)
    assert_near(o, kda(**doubled(tensors), initial_state=state.double())[0], _BOUND)


def test_in_place_without_slots():
    tensors = made()
    state = tensors.pop("initial_state")
    wanted_o, wanted_final = kda(**doubled(tensors), initial_state=state.double())
    out = torch.full_like(tensors["v"], 7)
    lathe.torch.stats(reset=True)
    o, final = fused_recurrent_kda_fwd(**tensors, initial_state=state, out=out)
    assert o is out and final is state
    assert lathe.torch.stats(reset=True) == {"final state copied into initial_state": 1,
                                             "result copied into out": 1}
    assert_near(o, wanted_o, _BOUND)
    assert_near(state, wanted_final, _BOUND)


def test_neither_in_place_nor_asked_for():
    o, final = fused_recurrent_kda_fwd(**made(), inplace_final_state=False)
    assert final is None and o.shape == (2, 9, 2, 40)


def test_slots_of_a_pool_that_is_a_view():
    tensors = made(B=1, T=3, N=3)
    pool = torch.full((6, 2, 2, 32, 40), 9.0)[:, 1]  # slots lie apart, as where caches share memory
    states, slots = tensors.pop("initial_state"), torch.tensor([4, 0, 2], dtype=torch.int32)
    pool[slots.long()] = states
    others = torch.tensor([1, 3, 5])
    offsets = torch.arange(4, dtype=torch.int32)
    lathe.torch.stats(reset=True)
    o, found = fused_recurrent_kda_fwd(**tensors, initial_state=pool, cu_seqlens=offsets,
                                       ssm_state_indices=slots)
    assert found is pool and lathe.torch.stats() == {}
    wanted_o, wanted = kda(**doubled(tensors), initial_state=states.double(), cu_seqlens=offsets)
    assert_near(o, wanted_o, _BOUND)
    assert_near(pool[slots.long()], wanted, _BOUND)
    assert (pool[others] == 9).all()


def test_the_result_is_written_into_a_tensor_that_the_caller_has():
    tensors = made(B=1, T=3, N=3)
    states = tensors.pop("initial_state")
    slots, offsets = torch.tensor([2, 0, 1]), torch.arange(4)
    wanted, _ = fused_recurrent_kda_fwd(**tensors, initial_state=states.clone(),
                                        cu_seqlens=offsets, ssm_state_indices=slots)
    flat = torch.zeros(3 * 2 * 40 + 8)
    for begin, copies in ((4, {}), (1, {"result copied into out": 1})):
        out = flat[begin:begin + 240].view(1, 3, 2, 40)
        lathe.torch.stats(reset=True)
        o, _ = fused_recurrent_kda_fwd(**tensors, initial_state=states.clone(), out=out,
                                       cu_seqlens=offsets, ssm_state_indices=slots)
        assert o is out and torch.equal(out, wanted) and lathe.torch.stats() == copies


def test_a_negative_slot_is_padding():
    tensors = made(B=1, T=2, N=2)
    pool = tensors["initial_state"].clone()
    fused_recurrent_kda_fwd(**{**tensors, "initial_state": pool}, cu_seqlens=torch.arange(3),
                            ssm_state_indices=torch.tensor([1, -1]))
    assert torch.equal(pool[0], tensors["initial_state"][0])
    assert not torch.equal(pool[1], tensors["initial_state"][1])


def test_speculative_tokens_have_slots_of_their_own():
    tensors = made(B=1, T=6, N=2)
    states = tensors.pop("initial_state")
    slots = torch.tensor([[3, 1, 5], [0, 4, 2]])
    pool = torch.zeros(6, 2, 32, 40)
    pool[1], pool[0] = states[0], states[1]  # accepted: two tokens of the first, one of the second
    offsets = torch.tensor([0, 3, 6])
    o, _ = fused_recurrent_kda_fwd(**tensors, initial_state=pool, cu_seqlens=offsets,
                                   ssm_state_indices=slots,
                                   num_accepted_tokens=torch.tensor([2, 1], dtype=torch.int32))
    exact = doubled(tensors)
    assert_near(o, kda(**exact, initial_state=states.double(), cu_seqlens=offsets)[0], _BOUND)
    for column in range(3):
        parts = {name: torch.cat([each[:, :column + 1], each[:, 3:4 + column]], 1)
                 for name, each in exact.items()}
        ends = torch.tensor([0, column + 1, 2 * column + 2])
        wanted = kda(**parts, initial_state=states.double(), cu_seqlens=ends)[1]
        assert_near(pool[slots[:, column]], wanted, _BOUND, str(column))


@pytest.mark.parametrize("file", golden.cases("kda_recurrent"))
def test_golden_file(file):
    case = golden.load(file)
    tensors = {name: to_torch(array) for name, array in case.inputs.items()}
    options = {name: value for name, value in case.options.items() if name != "safe_gate"}
    if "state_pool" in tensors:
        pool, slots = tensors.pop("state_pool"), tensors.pop("state_indices")
        o, _ = fused_recurrent_kda_fwd(**tensors, initial_state=pool, ssm_state_indices=slots,
                                       **options)
        found = {"o": o, "state_pool": pool}
    else:
        found = dict(zip(("o", "final_state"), fused_recurrent_kda(**tensors, **options)))
    case.compare({name: to_numpy(each) for name, each in found.items()})
