# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Convolutions of lathe.compat.fla: values and gradients against float64, and decoding in place."""
import pytest
import torch

import golden
import lathe.torch
from fla_reference import assert_near, conv, doubled
from lathe.compat.fla import ShortConvolution, causal_conv1d, causal_conv1d_update
from tensors import to_numpy, to_torch

_BOUND = 2e-6


def made(B=2, T=19, D=24, W=4, N=None, dtype=torch.float32, weight_dtype=None):
    """Returns inputs by name, all of which require gradients."""
    torch.manual_seed(5)
    tensors = {"x": torch.randn(B, T, D).to(dtype),
               "weight": torch.randn(D, W).to(weight_dtype or dtype),
               "bias": torch.randn(D).to(weight_dtype or dtype),
               "residual": torch.randn(B, T, D).to(dtype),
               "initial_state": torch.randn(N or B, D, W).to(dtype)}
    return {name: each.requires_grad_() for name, each in tensors.items()}


def compared(tensors, bound, cu_seqlens=None, activation=None, **options):
    """Asserts that results and all gradients are those of the reference."""
    y, final = causal_conv1d(**tensors, cu_seqlens=cu_seqlens, activation=activation,
                             output_final_state=True, **options)
    exact = doubled(tensors)
    wanted_y, wanted_final = conv(**exact, cu_seqlens=cu_seqlens, silu=activation is not None)
    dy, dfinal = torch.randn(y.shape).to(y.dtype), torch.randn(final.shape).to(y.dtype)
    torch.autograd.backward([y, final], [dy, dfinal])
    torch.autograd.backward([wanted_y, wanted_final], [dy.double(), dfinal.double()])
    assert_near(y, wanted_y, bound, "y")
    assert_near(final, wanted_final, bound, "final_state")
    for name, tensor in tensors.items():
        assert tensor.grad.dtype == tensor.dtype, name
        assert_near(tensor.grad, exact[name].grad, bound, "d" + name)


@pytest.mark.parametrize("activation", [None, "silu", "swish"])
def test_values_and_gradients(activation):
    compared(made(), _BOUND, activation=activation)


@pytest.mark.parametrize("backend", ["cuda", "mix"])
def test_packed(backend):
    compared(made(B=1, N=3), _BOUND, cu_seqlens=torch.tensor([0, 2, 2, 19]), activation="swish",
             backend=backend, seq_idx=torch.zeros(1, 19, dtype=torch.int32))


def test_sixteen_bits_with_weights_of_float32():
    compared(made(dtype=torch.bfloat16, weight_dtype=torch.float32), 5e-3, activation="silu")


def test_one_head_is_flattened():
    tensors = made()
    heads = {name: tensors[name].detach().unsqueeze(2) for name in ("x", "residual")}
    lathe.torch.stats(reset=True)
    y, _ = causal_conv1d(**{**tensors, **heads}, activation="silu")
    assert y.shape == (2, 19, 1, 24) and lathe.torch.stats() == {}
    assert_near(y.squeeze(2), conv(**doubled(tensors), silu=True)[0], _BOUND)


def test_heads_are_flattened():
    tensors = made()
    heads = {name: each.detach().unflatten(-1, (6, 4)).requires_grad_()
             for name, each in tensors.items() if name in ("x", "residual")}
    y, final = causal_conv1d(**{**tensors, **heads}, activation="silu", output_final_state=True)
    assert y.shape == (2, 19, 6, 4) and final.shape == (2, 24, 4)
    y += 1
    (y.square().sum() + final.sum()).backward()
    exact = doubled(tensors)
    wanted, final = conv(**exact, silu=True)
    ((wanted + 1).square().sum() + final.sum()).backward()
    assert_near(heads["x"].grad.flatten(2), exact["x"].grad, _BOUND)
    assert_near(heads["residual"].grad.flatten(2), exact["residual"].grad, _BOUND)


def test_views_in_and_expanded_gradients():
    tensors = made()
    mixed = torch.randn(2, 19, 72, requires_grad=True)
    lathe.torch.stats(reset=True)
    y, _ = causal_conv1d(mixed[..., 24:48], tensors["weight"])
    assert lathe.torch.stats() == {}
    y.sum().backward()
    assert lathe.torch.stats(reset=True) == {"copied to contiguous rows": 1}
    exact = doubled({"x": mixed[..., 24:48], "weight": tensors["weight"]})
    conv(**exact)[0].sum().backward()
    assert_near(mixed.grad[..., 24:48], exact["x"].grad, _BOUND)
    assert_near(tensors["weight"].grad, exact["weight"].grad, _BOUND)
    turned = torch.randn(2, 24, 19).transpose(1, 2)
    y, _ = causal_conv1d(turned, tensors["weight"])
    assert lathe.torch.stats(reset=True) == {"copied to contiguous rows": 1}
    assert_near(y, conv(turned.double(), tensors["weight"].double())[0], _BOUND)


def test_a_strided_gradient_is_not_copied():
    tensors = made()
    y, _ = causal_conv1d(tensors["x"], tensors["weight"], activation="silu")
    upstream = torch.randn(2, 19, 72)[..., :24]
    lathe.torch.stats(reset=True)
    y.backward(upstream)
    assert lathe.torch.stats() == {}
    exact = doubled({name: tensors[name] for name in ("x", "weight")})
    conv(**exact, silu=True)[0].backward(upstream.double())
    assert_near(tensors["x"].grad, exact["x"].grad, _BOUND)


def test_results_may_be_changed_in_place():
    tensors = made()
    residual = tensors.pop("residual")
    y, final = causal_conv1d(**tensors, output_final_state=True)
    y += residual
    final += 1
    (y.square().sum() + final.square().sum()).backward()
    exact = doubled({**tensors, "residual": residual})
    y, final = conv(**exact)
    (y.square().sum() + (final + 1).square().sum()).backward()
    for name in ("x", "initial_state"):
        assert_near(tensors[name].grad, exact[name].grad, _BOUND, name)


@pytest.mark.parametrize("shape", [(3, 24), (3, 1, 24), (1, 3, 24), (3, 1, 6, 4), (1, 3, 6, 4),
                                   (3, 1, 1, 24)])
def test_update(shape):
    tensors = made(B=3, T=1)
    x, residual = (tensors[name].detach().reshape(shape) for name in ("x", "residual"))
    cache = tensors["initial_state"].detach().clone()
    y, found = causal_conv1d_update(x, cache, residual, tensors["weight"], tensors["bias"], "swish")
    assert found is cache and y.shape == shape and not y.requires_grad
    wanted, state = conv(**doubled(tensors), silu=True)
    assert_near(y.reshape(3, 1, 24), wanted, _BOUND)
    assert torch.equal(cache, state.float())


def test_update_of_a_cache_that_is_not_contiguous():
    tensors = made(B=3, T=1)
    wide = torch.zeros(3, 24, 8)
    cache = wide[..., 2:6]
    cache.copy_(tensors["initial_state"].detach())
    lathe.torch.stats(reset=True)
    y, found = causal_conv1d_update(tensors["x"].detach(), cache, weight=tensors["weight"])
    assert found is cache
    assert lathe.torch.stats(reset=True) == {"copied to contiguous rows": 1,
                                             "state copied back into cache": 1}
    exact = doubled({name: tensors[name] for name in ("x", "weight", "initial_state")})
    wanted, state = conv(**exact)
    assert_near(y, wanted, _BOUND)
    assert torch.equal(cache, state.float())
    assert not wide[..., :2].any() and not wide[..., 6:].any()


def layer(**options):
    torch.manual_seed(3)
    return ShortConvolution(24, 4, **options)


def test_layer_has_the_parameters_of_a_convolution():
    module = layer(bias=True, dtype=torch.bfloat16)
    assert {name: tuple(each.shape) for name, each in module.state_dict().items()} == {
        "weight": (24, 1, 4), "bias": (24,)}
    assert isinstance(module, torch.nn.Conv1d) and module.state_size == 96
    assert module.weight.dtype == torch.bfloat16 and "activation=silu" in repr(module)


def test_layer_trains():
    module, x = layer(bias=True), torch.randn(2, 19, 24, requires_grad=True)
    y, final = module(x, output_final_state=True)
    upstream = torch.randn(y.shape)
    y.backward(upstream)
    exact = doubled({"x": x, "weight": module.weight[:, 0], "bias": module.bias})
    wanted, state = conv(**exact, silu=True)
    wanted.backward(upstream.double())
    assert_near(y, wanted, _BOUND)
    assert_near(final, state, _BOUND)
    assert_near(x.grad, exact["x"].grad, _BOUND)
    assert_near(module.weight.grad[:, 0], exact["weight"].grad, _BOUND)
    assert_near(module.bias.grad, exact["bias"].grad, _BOUND)
    assert module(x)[1] is None


def test_layer_masks_in_place():
    module, x = layer(), torch.randn(2, 5, 24)
    mask = torch.tensor([[0, 1, 1, 1, 1], [1, 1, 1, 1, 1.0]])
    wanted, _ = module(x * mask[..., None])
    found, _ = module(x, mask=mask)
    assert torch.equal(found, wanted) and not x[0, 0].any()
    with pytest.raises(ValueError, match="mask and cu_seqlens"):
        module(x, mask=mask, cu_seqlens=torch.tensor([0, 5]))


@torch.no_grad()
def test_layer_decodes_in_place():
    module, x = layer(), torch.randn(2, 6, 24)
    wanted, state = module(x, output_final_state=True)
    _, cache = module(x[:, :3], output_final_state=True)
    for t in range(3, 6):
        y, found = module(x[:, t:t + 1], cache=cache, output_final_state=True)
        assert found is cache
        assert_near(y, wanted[:, t:t + 1], _BOUND)
    assert torch.equal(cache, state)
    y, found = module(x[:, :1])
    assert found is None
    assert_near(y, wanted[:, :1], _BOUND)


@torch.no_grad()
def test_layer_decodes_packed_sequences_in_place():
    """As many tokens as sequences are a step only if each has one: else the cache stays."""
    module, cache = layer(), torch.randn(3, 24, 4)
    x = torch.randn(1, 3, 24)
    for offsets in ([0, 1, 2, 3], [0, 2, 2, 3], [0, 0, 0, 3]):
        state, steps, offsets = cache.clone(), offsets == [0, 1, 2, 3], torch.tensor(offsets)
        lathe.torch.stats(reset=True)
        y, found = module(x, cache=state, cu_seqlens=offsets, output_final_state=True)
        assert lathe.torch.stats() == {"final state copied into cache": 1}
        wanted, final = conv(x.double(), module.weight[:, 0].double(), silu=True,
                             initial_state=cache.double(), cu_seqlens=offsets)
        assert_near(y, wanted, _BOUND)
        assert torch.equal(found, final.float())
        assert torch.equal(state, final.float() if steps else cache)


@torch.no_grad()
def test_layer_of_an_empty_batch():
    for tokens in (1, 5):
        cache = torch.randn(0, 24, 4)
        y, found = layer()(torch.randn(0, tokens, 24), cache=cache, output_final_state=True)
        assert y.shape == (0, tokens, 24) and found.shape == (0, 24, 4)
        assert (found is cache) == (tokens == 1)


def test_a_token_that_trains_leaves_the_cache_alone():
    module, cache = layer(), torch.randn(2, 24, 4)
    before, x = cache.clone(), torch.randn(2, 1, 24)
    y, found = module(x, cache=cache, output_final_state=True)
    assert y.requires_grad and found is not cache and torch.equal(cache, before)
    assert torch.equal(found[..., -1], x[:, 0])


@torch.no_grad()
def test_decoding_is_compiled_without_breaks():
    module, x, caches = layer(), torch.randn(2, 1, 24), [torch.ones(2, 24, 4) for _ in range(2)]
    wanted, _ = module(x, cache=caches[0])
    found, _ = torch.compile(module, fullgraph=True, backend="aot_eager")(x, cache=caches[1])
    assert torch.equal(found, wanted) and torch.equal(*caches)


@pytest.mark.parametrize("file", golden.cases("causal_conv1d", "causal_conv1d_update"))
def test_golden_file(file):
    case = golden.load(file)
    tensors = {name: to_torch(array) for name, array in case.inputs.items()}
    activation = {"none": None, "silu": "silu"}[case.options["activation"]]
    if case.op == "causal_conv1d_update":
        cache = tensors.pop("state")
        y, _ = causal_conv1d_update(**tensors, cache=cache, activation=activation)
        case.compare({"y": to_numpy(y), "state": to_numpy(cache)})
        return
    upstream = {"y": tensors.pop("dy", None), "final_state": tensors.pop("dfinal_state", None)}
    tensors = {name: each.requires_grad_() if each.is_floating_point() else each
               for name, each in tensors.items()}
    found = dict(zip(("y", "final_state"), causal_conv1d(
        **tensors, activation=activation,
        output_final_state=bool(case.options["output_final_state"]))))
    pairs = [(found[name], grad) for name, grad in upstream.items() if grad is not None]
    if pairs:
        torch.autograd.backward(*zip(*pairs))
    arrays = {name: to_numpy(each) for name, each in found.items() if each is not None}
    arrays.update({"d" + name: to_numpy(each.grad) for name, each in tensors.items()
                   if each.grad is not None})
    case.compare(arrays)
