# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""lathe.compat.sdpa: torch's own operators of flash attention, here for CPU tensors."""
import inspect

import pytest
import torch

import lathe
from attention import error, reference, skip_without_pages_of_aten
from lathe.compat import sdpa

aten = torch.ops.aten


pytestmark = pytest.mark.usefixtures("sdpa_on_cpu")


def made(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator).half()


def exact(q, k, v, **options):
    """Returns float64's result for [B,H,S,D]."""
    return reference(*(each.transpose(1, 2) for each in (q, k, v)), **options)[0].transpose(1, 2)


@pytest.mark.parametrize("order", ["heads first", "tokens first"])
@pytest.mark.parametrize("keys, causal", [(40, True), (56, False)])
def test_scaled_dot_product(order, keys, causal):
    if order == "heads first":
        q, k, v = made(2, 4, 40, 32), made(2, 2, keys, 32, seed=1), made(2, 2, keys, 32, seed=2)
    else:
        q, k, v = (made(2, length, heads, 32, seed=heads).transpose(1, 2)
                   for length, heads in ((40, 4), (keys, 2), (keys, 2)))
    q, k, v = (each.requires_grad_() for each in (q, k, v))
    out, lse, *rest = aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, scale=0.2)
    assert out.stride() == q.stride() and lse.shape == (2, 4, 40)
    assert rest[:2] == [None, None] and rest[2:4] == [40, keys]
    assert rest[4].dtype == rest[5].dtype == torch.uint64 and rest[6].numel() == 0
    wanted = exact(q, k, v, causal=causal, scale=0.2)
    assert error(out, wanted) < 2e-3
    dout = made(2, 40, 4, 32).transpose(1, 2)
    for gradient, right in zip(torch.autograd.grad(out, (q, k, v), dout),
                               torch.autograd.grad(wanted, (q, k, v), dout.double())):
        assert error(gradient, right) < 3e-3


def test_unequal_widths_keep_the_order():
    q, k, v = made(1, 8, 2, 64).transpose(1, 2), made(1, 2, 9, 64), made(1, 2, 9, 32)
    out = aten._scaled_dot_product_flash_attention(q, k, v)[0]
    assert out.transpose(1, 2).is_contiguous()
    assert error(out, exact(q, k, v)) < 2e-3


def test_varlen():
    cu = torch.tensor([0, 9, 30]).int()
    q, k, v = (made(30, 2, 32, seed=seed).requires_grad_() for seed in range(3))
    out, lse, *_ = aten._flash_attention_forward(q, k, v, cu, cu, 21, 21, 0.0, False, False,
                                                 window_size_left=5, window_size_right=0)
    parts = [[each[None, a:b] for each in (q, k, v)] for a, b in ((0, 9), (9, 30))]
    wanted = torch.cat([reference(*part, left=5, right=0)[0][0] for part in parts])
    assert error(out, wanted) < 2e-3 and lse.shape == (2, 30)
    dout = made(30, 2, 32)
    for gradient, right in zip(torch.autograd.grad(out, (q, k, v), dout),
                               torch.autograd.grad(wanted, (q, k, v), dout.double())):
        assert error(gradient, right) < 3e-3


@pytest.mark.skipif(not hasattr(aten, "_flash_attention_forward_no_dropout_inplace"),
                    reason="this torch has no operator that takes an output: torch 2.15 has it")
def test_varlen_in_place():
    cu = torch.tensor([0, 9, 30]).int()
    q, k, v = (made(30, 2, 32, seed=seed) for seed in range(3))
    given, window = (q, k, v, cu, cu, 21, 21, 0.0, False, False), {"window_size_left": 5,
                                                                   "window_size_right": 0}
    out, lse, *_ = aten._flash_attention_forward(*given, **window)
    room = torch.zeros(30, 2, 40).half()
    found = aten._flash_attention_forward_no_dropout_inplace(room[..., :32], *given, **window)
    assert torch.equal(room[..., :32], out) and torch.equal(found, lse)
    assert (room[..., 32:] == 0).all()


@pytest.mark.parametrize("compiled", [False, True])
def test_varlen_attn(compiled):
    varlen = pytest.importorskip("torch.nn.attention.varlen", reason="torch is older than 2.10")
    cu = torch.tensor([0, 9, 30]).int()
    inputs = [made(30, 2, 32, seed=seed).requires_grad_() for seed in range(3)]

    # torch 2.10 has no windows.
    windows = "window_size" in inspect.signature(varlen.varlen_attn).parameters
    causal = {"window_size": (-1, 0)} if windows else {"is_causal": True}

    def call(q, k, v):
        return varlen.varlen_attn(q, k, v, cu, cu, 21, 21, **causal)

    run = torch.compile(call, fullgraph=True, backend="aot_eager") if compiled else call
    out = run(*inputs)
    wanted = torch.cat([reference(*(each[None, a:b] for each in inputs), causal=True)[0][0]
                        for a, b in ((0, 9), (9, 30))])
    assert error(out, wanted) < 2e-3
    dout = made(30, 2, 32)
    for gradient, right in zip(torch.autograd.grad(out, inputs, dout),
                               torch.autograd.grad(wanted, inputs, dout.double())):
        assert error(gradient, right) < 3e-3


def test_pages():
    skip_without_pages_of_aten()
    cu, used = torch.tensor([0, 3, 5]).int(), torch.tensor([20, 31]).int()
    q, k, v = made(5, 2, 32), made(4, 16, 2, 32), made(4, 16, 2, 32, seed=1)
    table = torch.tensor([[3, 0], [1, 2]]).int()
    out, *_ = aten._flash_attention_forward(q, k, v, cu, None, 3, 32, 0.0, True, False,
                                            seqused_k=used, block_table=table)
    for b in range(2):
        keys, values = (each[table[b].long()].flatten(0, 1)[None, :used[b]] for each in (k, v))
        wanted, _ = reference(q[None, cu[b]:cu[b + 1]], keys, values, causal=True)
        assert error(out[None, cu[b]:cu[b + 1]], wanted) < 2e-3


def test_refusals():
    q, k = made(1, 2, 8, 32), made(1, 2, 9, 32)
    run = aten._scaled_dot_product_flash_attention
    with pytest.raises(RuntimeError, match="dropout_p is 0.1; allowed is 0.0"):
        run(q, q, q, 0.1)
    with pytest.raises(RuntimeError, match="return_debug_mask is True"):
        run(q, q, q, 0.0, False, True)
    with pytest.raises(RuntimeError, match="8 queries and 9 keys; .*top left"):
        run(q, k, k, 0.0, True)


def test_no_registry(monkeypatch):
    monkeypatch.delattr(torch.nn.attention, "register_flash_attention_impl", raising=False)
    with pytest.raises(lathe.Unsupported, match="has no registry of flash attention; upgrade it"):
        sdpa.register()


@pytest.mark.skipif(not hasattr(torch.nn.attention, "restore_flash_attention_impl"),
                    reason="this torch has no registry that restores its own: torch 2.15 has it")
def test_registry():
    attention = torch.nn.attention
    sdpa.register()
    assert "lathe" in attention.list_flash_attention_impls()
    attention.activate_flash_attention_impl("lathe")
    assert attention.current_flash_attention_impl() == "lathe"
    attention.restore_flash_attention_impl()
    assert attention.current_flash_attention_impl() is None


@pytest.mark.parametrize("form", [lambda x: x, lambda x: x.transpose(1, 2).contiguous()
                                  .transpose(1, 2), lambda x: x.mT.contiguous().mT])
def test_gradients_have_the_strides_of_torch(form, sdpa_on_cpu):
    """Inductor reads gradients with the strides that torch's meta kernel gives them."""
    q, k, v = (form(torch.randn(2, 4, 9, 16).half()) for _ in range(3))
    sdpa, back = (torch.ops.aten._scaled_dot_product_flash_attention,
                  torch.ops.aten._scaled_dot_product_flash_attention_backward)
    out, lse, *rest = sdpa(q, k, v)
    seeds = rest[4:6]
    given = (torch.randn_like(out), q, k, v, out, lse, None, None, 9, 9, 0.0, False, *seeds)
    found = back(*given)
    wanted = back(*(each.to("meta") if isinstance(each, torch.Tensor) else each for each in given))
    for one, other in zip(found, wanted):
        assert one.stride() == other.stride() and one.shape == other.shape
