# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""chunk_kda of lathe.compat.fla: values and gradients against float64, and torch around it."""
import pytest
import torch

import golden
import lathe.torch
from fla_reference import assert_near, doubled, kda
from lathe.compat.fla import chunk_kda
from tensors import to_numpy, to_torch

# Names of the reference's options.
_FLAGS = {"norms": "use_qk_l2norm_in_kernel", "gate": "use_gate_in_kernel",
          "sigmoid": "use_beta_sigmoid_in_kernel", "negative": "allow_neg_eigval"}
BOUNDS = {torch.float32: 2e-5, torch.bfloat16: 1.5e-2, torch.float16: 2e-3}


def made(B=2, T=37, H=1, HV=2, K=32, V=40, dtype=torch.float32, N=None, gate=False, sigmoid=False,
         state=True, bias_shape=None, rate_shape=None, parameters=torch.float32):
    """Returns inputs by name, all of which require gradients."""
    torch.manual_seed(7)
    tensors = {"q": torch.randn(B, T, H, K), "k": torch.randn(B, T, H, K) / K**0.5,
               "v": torch.randn(B, T, HV, V)}
    tensors["g"] = torch.randn(B, T, HV, K) if gate else -torch.rand(B, T, HV, K)
    tensors["beta"] = torch.randn(B, T, HV) if sigmoid else torch.rand(B, T, HV)
    tensors = {name: each.to(dtype) for name, each in tensors.items()}
    if gate:
        tensors["A_log"] = torch.rand(HV).reshape(rate_shape or (HV,)).to(parameters)
        tensors["dt_bias"] = torch.randn(HV * K).reshape(bias_shape or (HV * K,)).to(parameters)
    if state:
        tensors["initial_state"] = torch.randn(N or B, HV, K, V)
    return {name: each.requires_grad_() for name, each in tensors.items()}


def compared(tensors, bound, cu_seqlens=None, **options):
    """Asserts that results and all gradients are those of the reference."""
    flags = {_FLAGS.get(name, name): value for name, value in options.items()}
    o, final = chunk_kda(**tensors, cu_seqlens=cu_seqlens, output_final_state=True, **flags)
    exact = doubled(tensors)
    wanted_o, wanted_final = kda(**exact, cu_seqlens=cu_seqlens, **{
        name: value for name, value in options.items() if name not in ("safe_gate", "chunk_size",
                                                                       "disable_recompute")})
    assert o.dtype == tensors["q"].dtype and final.dtype == torch.float32
    do, dfinal = torch.randn(o.shape).to(o.dtype), torch.randn(final.shape)
    torch.autograd.backward([o, final], [do, dfinal])
    torch.autograd.backward([wanted_o, wanted_final], [do.double(), dfinal.double()])
    assert_near(o, wanted_o, bound, "o")
    assert_near(final, wanted_final, bound, "final_state")
    for name, tensor in tensors.items():
        assert tensor.grad.dtype == tensor.dtype, name
        assert_near(tensor.grad, exact[name].grad, 2 * bound, "d" + name)


def test_plain():
    compared(made(), BOUNDS[torch.float32], scale=0.3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bits(dtype):
    compared(made(dtype=dtype), BOUNDS[dtype])


def test_all_in_the_kernel():
    compared(made(gate=True, sigmoid=True, rate_shape=(1, 1, 2, 1), bias_shape=(2, 32)),
             BOUNDS[torch.float32], norms=True, gate=True, sigmoid=True, negative=True,
             disable_recompute=True, chunk_size=32)


def test_parameters_of_sixteen_bits():
    compared(made(gate=True, parameters=torch.bfloat16), 5e-3, gate=True)


def test_lower_bound_with_and_without_the_rate():
    tensors = made(gate=True, V=32)
    compared(tensors, BOUNDS[torch.float32], gate=True, lower_bound=-4.0, safe_gate=True,
             state_v_first=True)
    del tensors["A_log"]
    for each in tensors.values():
        each.grad = None
    compared(tensors, BOUNDS[torch.float32], gate=True, lower_bound=-5.0)


def test_packed():
    offsets = torch.tensor([0, 5, 5, 37])
    compared(made(B=1, N=3), BOUNDS[torch.float32], cu_seqlens=offsets, norms=True)
    compared(made(B=1, N=3), BOUNDS[torch.float32], cu_seqlens=offsets.int())


def test_rows_past_the_last_offset_are_zero():
    tensors = made(B=1, N=2)
    o, _ = chunk_kda(**tensors, cu_seqlens=torch.tensor([0, 9, 30]))
    o.square().sum().backward()
    assert o[:, :30].any() and not o[:, 30:].any()
    for name in ("q", "k", "v", "g", "beta"):
        assert tensors[name].grad[:, :30].any() and not tensors[name].grad[:, 30:].any(), name


def test_a_loss_on_the_final_state_alone():
    tensors = made()
    _, final = chunk_kda(**tensors, output_final_state=True)
    upstream = torch.randn(final.shape)
    final.backward(upstream)
    exact = doubled(tensors)
    kda(**exact)[1].backward(upstream.double())
    for name in ("k", "v", "g", "beta", "initial_state"):
        assert_near(tensors[name].grad, exact[name].grad, 1e-4, name)
    assert not tensors["q"].grad.any()


def test_no_state_asked_for():
    o, final = chunk_kda(**made(state=False))
    assert final is None and o.requires_grad


def test_views_in_and_expanded_gradients():
    tensors = made(state=False, H=2, V=32)
    mixed = torch.cat([tensors[name].detach() for name in "qkv"], -1).requires_grad_()
    q, k, v = mixed.split(32, -1)
    lathe.torch.stats(reset=True)
    o, _ = chunk_kda(q, k, v, tensors["g"], tensors["beta"])
    assert lathe.torch.stats() == {}
    o.sum().backward()
    assert lathe.torch.stats() == {"copied to contiguous rows": 1}
    exact = doubled({name: tensors[name] for name in ("q", "k", "v", "g", "beta")})
    kda(**exact)[0].sum().backward()
    wanted = torch.cat([exact[name].grad for name in "qkv"], -1)
    assert_near(mixed.grad, wanted, BOUNDS[torch.float32] * 2)


def test_rows_that_are_not_contiguous_are_copied_and_counted():
    tensors = {name: each.detach() for name, each in made(state=False).items()}
    wanted, _ = chunk_kda(**tensors)
    turned = tensors["v"].transpose(-1, -2).contiguous().transpose(-1, -2)
    lathe.torch.stats(reset=True)
    found, _ = chunk_kda(**{**tensors, "v": turned})
    assert torch.equal(found, wanted)
    assert lathe.torch.stats(reset=True) == {"copied to contiguous rows": 1}


def test_results_may_be_changed_in_place():
    tensors = made()
    o, final = chunk_kda(**tensors, output_final_state=True)
    o += 1
    final *= 2
    (o.sum() + final.sum()).backward()
    exact = doubled(tensors)
    o, final = kda(**exact)
    (o.sum() + 2 * final.sum()).backward()
    assert_near(tensors["v"].grad, exact["v"].grad, BOUNDS[torch.float32] * 2)


def test_states_of_chunks():
    tensors = {name: each.detach() for name, each in made(T=70, V=32, dtype=torch.bfloat16).items()}
    lathe.torch.stats(reset=True)
    with torch.inference_mode():
        o, final, states = chunk_kda(**tensors, output_final_state=True, chunk_size=32,
                                     return_intermediate_states=True, use_graph=True)
    assert states.shape == (2, 3, 2, 32, 32) and states.dtype == torch.bfloat16
    assert "states of chunks cast to k's dtype" in lathe.torch.stats(reset=True)
    head = {name: each if name == "initial_state" else each[:, :64]
            for name, each in tensors.items()}
    assert_near(states[:, 2], kda(**doubled(head))[1], 1.5e-2)
    with torch.inference_mode():
        found = chunk_kda(*(tensors[name][:1] for name in ("q", "k", "v", "g", "beta")),
                          cu_seqlens=torch.tensor([0, 40, 70]), return_intermediate_states=True)
    assert found[1] is None and found[2].shape == (1, 2, 2, 32, 32)
    assert "offsets read on the host" in lathe.torch.stats(reset=True)


def test_deterministic_algorithms_may_be_asked_for():
    tensors = {name: each.detach() for name, each in made().items()}
    wanted, _ = chunk_kda(**tensors)
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.equal(chunk_kda(**tensors)[0], wanted)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("file", golden.cases("kda"))
def test_golden_file(file):
    case = golden.load(file)
    # Of these the peer has no names, and only chunk_states depends on them.
    options = {name: value for name, value in case.options.items()
               if name not in ("segments", "output_chunk_states", "chunk_size")}
    case.wanted.pop("chunk_states", None)
    tensors = {name: to_torch(array) for name, array in case.inputs.items()}
    upstream = {"o": tensors.pop("do", None), "final_state": tensors.pop("dht", None)}
    if upstream["o"] is not None:
        tensors = {name: each.requires_grad_() if each.is_floating_point() else each
                   for name, each in tensors.items()}
    found = dict(zip(("o", "final_state"), chunk_kda(**tensors, **options)))
    pairs = [(found[name], grad) for name, grad in upstream.items() if grad is not None]
    if pairs:
        torch.autograd.backward(*zip(*pairs))
    arrays = {name: to_numpy(each) for name, each in found.items() if each is not None}
    arrays.update({"d" + name: to_numpy(each.grad) for name, each in tensors.items()
                   if each.grad is not None})
    case.compare(arrays)
