# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""lathe.compat.flash_attn, flash_attn_3 and flash_attn_4 on whole and packed sequences."""
import pytest
import torch

import golden
import lathe
import lathe.torch
from attention import error, reference, sequences
from lathe.compat import flash_attn, flash_attn_3, flash_attn_4
from tensors import to_numpy, to_torch

BOUND = {torch.float16: 2e-3, torch.bfloat16: 1.2e-2}


def made(*shape, dtype=torch.bfloat16, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return (scale * torch.randn(shape, generator=generator)).to(dtype).requires_grad_()


def compare(found, wanted, inputs, dout=None, bound=None):
    """Compares a result and the gradients of inputs with those of float64."""
    bound = bound or BOUND[found.dtype]
    dout = made(*found.shape, dtype=found.dtype, seed=9).detach() if dout is None else dout
    assert error(found, wanted) < bound
    gradients = torch.autograd.grad(found, inputs, dout, retain_graph=True)
    exact = torch.autograd.grad(wanted, inputs, dout.double(), retain_graph=True)
    for each, gradient, right in zip(inputs, gradients, exact):
        assert gradient.shape == each.shape and gradient.dtype == each.dtype
        assert error(gradient, right) < bound


# ---- values and gradients ------------------------------------------------------------------------

CASES = [
    dict(),
    dict(causal=True),
    dict(causal=True, window_size=(16, -1), softcap=5.0),
    dict(window_size=torch.tensor([20, 7]), softmax_scale=0.3),
    dict(causal=True, alibi=True, deterministic=True),
]


def wanted_options(options, heads):
    """Returns the reference's names for a case's options, and slopes."""
    options = dict(options)
    slopes = torch.rand(heads, generator=torch.Generator().manual_seed(1)) * 0.3
    slopes = slopes if options.pop("alibi", False) else None
    left, right = (int(each) for each in options.get("window_size", (-1, -1)))
    exact = dict(causal=options.get("causal", False), left=left, right=right, slopes=slopes,
                 softcap=options.get("softcap", 0.0), scale=options.get("softmax_scale"))
    return {**options, "alibi_slopes": slopes}, exact


@pytest.mark.parametrize("options", CASES)
def test_whole_sequences(options):
    q, k, v = made(2, 50, 4, 32), made(2, 70, 2, 32, seed=1), made(2, 70, 2, 32, seed=2)
    options, exact = wanted_options(options, 4)
    out, lse, mask = flash_attn.flash_attn_func(q, k, v, return_attn_probs=True, **options)
    wanted, wanted_lse = reference(q, k, v, **exact)
    compare(out, wanted, (q, k, v))
    assert (lse - wanted_lse).abs().max() < 1e-2 and not lse.requires_grad and mask.numel() == 0


@pytest.mark.parametrize("options", CASES[1:])
@pytest.mark.parametrize("width", [32, 36])
def test_packed_keys_and_values(options, width):
    q, kv = (made(*shape, width, dtype=torch.float16) for shape in ((1, 40, 4), (1, 60, 2, 2)))
    options, exact = wanted_options(options, 4)
    wanted, _ = reference(q, *kv.unbind(2), **exact)
    compare(flash_attn.flash_attn_kvpacked_func(q, kv, **options), wanted, (q, kv))


@pytest.mark.parametrize("width", [32, 36])
def test_packed_queries(width):
    qkv = made(2, 45, 3, 2, width, dtype=torch.float16)
    wanted, _ = reference(*qkv.unbind(2), causal=True)
    compare(flash_attn.flash_attn_qkvpacked_func(qkv, causal=True), wanted, (qkv,))
    compare(flash_attn_3.flash_attn_qkvpacked_func(qkv, causal=True), wanted, (qkv,))
    heads = made(2, 45, 8, width, dtype=torch.float16)
    wanted, _ = reference(heads[:, :, :4], heads[:, :, 4:6], heads[:, :, 6:])
    compare(flash_attn_3.flash_attn_qkvpacked_func(heads, num_heads_q=4), wanted, (heads,))


def test_ragged_sequences():
    cu_q, cu_k = torch.tensor([0, 20, 20, 50]).int(), torch.tensor([0, 33, 40, 64]).int()
    q, kv = made(50, 4, 32), made(64, 2, 2, 32)
    k, v = kv.unbind(1)
    pairs = zip(sequences(q, cu_q), sequences(k, cu_k), sequences(v, cu_k))
    wanted = torch.cat([reference(*each, causal=True)[0][0] for each in pairs])
    arguments = (cu_q, cu_k, 30, 33)
    compare(flash_attn.flash_attn_varlen_func(q, k, v, *arguments, causal=True), wanted, (q, kv))
    compare(flash_attn.flash_attn_varlen_kvpacked_func(q, kv, *arguments, causal=True), wanted,
            (q, kv))
    compare(flash_attn_3.flash_attn_varlen_func(q, k, v, *arguments, causal=True), wanted, (q, kv))
    found, lse = flash_attn_4.flash_attn_varlen_func(q, k, v, None, *arguments, causal=True)
    compare(found, wanted, (q, kv))
    assert lse.shape == (4, 50)
    qkv = made(50, 3, 2, 32)
    wanted = torch.cat([reference(*each.unbind(2))[0][0] for each in sequences(qkv, cu_q)])
    compare(flash_attn.flash_attn_varlen_qkvpacked_func(qkv, cu_q, 30), wanted, (qkv,))


def test_unequal_widths_and_pairs():
    q, k, v = made(1, 40, 2, 64), made(1, 40, 2, 64, seed=1), made(1, 40, 2, 32, seed=2)
    wanted, wanted_lse = reference(q, k, v, left=9, right=3)
    compare(flash_attn_3.flash_attn_func(q, k, v, window_size=(9, 3)), wanted, (q, k, v))
    out, lse = flash_attn_3.flash_attn_func(q, k, v, window_size=(9, 3), return_attn_probs=True)
    assert (lse - wanted_lse).abs().max() < 1e-2 and not lse.requires_grad


def test_sinks_and_gradients_of_lse():
    q, k, v = made(1, 40, 4, 32), made(1, 60, 2, 32, seed=1), made(1, 60, 2, 32, seed=2)
    for dtype in (torch.float32, torch.bfloat16):
        sinks = made(4, dtype=dtype)
        out, lse = flash_attn_4.flash_attn_func(q, k, v, causal=True, learnable_sink=sinks,
                                                return_lse=True)
        wanted, wanted_lse = reference(q, k, v, causal=True, sinks=sinks)
        compare(out, wanted, (q, k, v, sinks))
        compare(lse, wanted_lse, (q, k, sinks), bound=1.2e-2)
    out, lse = flash_attn_4.flash_attn_func(q, k, v)
    assert not lse.requires_grad


@pytest.mark.parametrize("window, seen", [
    ((None, None), {}), ((-1, -1), {}), ((7, None), dict(left=7)), ((None, 0), dict(right=0)),
    ((5, 2), dict(left=5, right=2))])
def test_windows_of_none(window, seen):
    q, k, v = made(1, 20, 2, 32), made(1, 20, 2, 32, seed=1), made(1, 20, 2, 32, seed=2)
    out, _ = flash_attn_4.flash_attn_func(q, k, v, window_size=window)
    assert error(out, reference(q, k, v, **seen)[0]) < 1e-2


@pytest.mark.parametrize("cu", [True, False], ids=["packed", "batched"])
def test_slots_used_in_part(cu):
    used_q, used_k = torch.tensor([20, 7]).int(), torch.tensor([30, 11]).int()
    shape = (2, 30, 4, 32), (2, 40, 2, 32)
    q, k, v = made(*shape[0]), made(*shape[1], seed=1), made(*shape[1], seed=2)
    wanted = torch.zeros(2, 30, 4, 32, dtype=torch.float64)
    for b in range(2):
        rows, keys = slice(int(used_q[b])), slice(int(used_k[b]))
        wanted[b, rows] = reference(q[b:b + 1, rows], k[b:b + 1, keys], v[b:b + 1, keys],
                                    causal=True)[0][0]
    lathe.torch.stats(reset=True)
    if cu:
        cu_q, cu_k = (torch.arange(3).int() * each for each in (30, 40))
        found = flash_attn_3.flash_attn_varlen_func(
            q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), cu_q, cu_k, 30, 40, used_q, used_k,
            causal=True).unflatten(0, (2, 30))
    else:
        found, lse = flash_attn_4.flash_attn_varlen_func(q, k, v, seqused_q=used_q,
                                                         seqused_k=used_k, causal=True)
        assert lse.shape == (2, 4, 30) and lse[0, :, 20:].isinf().all()
    compare(found, wanted, (q, k, v))
    assert lathe.torch.stats() == {"moved used rows together": 2, "moved results to their slots": 1}


@pytest.mark.parametrize("file", golden.cases("flash_attention"))
def test_golden(file):
    case = golden.load(file)
    tensors = {name: to_torch(array) for name, array in case.inputs.items()}
    dout, dlse = tensors.pop("dout"), tensors.pop("dlse", None)
    window = (case.options.pop("window_left", -1), case.options.pop("window_right", -1))
    for tensor in tensors.values():
        tensor.requires_grad_(tensor.is_floating_point())
    if dlse is not None or "sinks" in tensors:
        sinks = tensors.get("sinks")
        out, lse = flash_attn_4.flash_attn_func(tensors["q"], tensors["k"], tensors["v"],
                                                learnable_sink=sinks, return_lse=True,
                                                window_size=window, **case.options)
    else:
        packed = "cu_seqlens_q" in tensors
        name = "flash_attn_varlen_func" if packed else "flash_attn_func"
        slopes = tensors.pop("alibi_slopes", None)
        lengths = dict(max_seqlen_q=97, max_seqlen_k=144) if packed else {}
        out, lse, _ = getattr(flash_attn, name)(
            **tensors, **lengths, **case.options, window_size=window, return_attn_probs=True,
            alibi_slopes=None if slopes is None else slopes.detach())
    pairs = [(out, dout)] + ([(lse, dlse)] if dlse is not None else [])
    torch.autograd.backward(*zip(*pairs))
    gradients = {"d" + name: tensor.grad for name, tensor in tensors.items()}
    found = {"out": out, "lse": lse, **gradients}
    case.compare({name: to_numpy(each) for name, each in found.items() if each is not None})


# ---- what callers do with them -------------------------------------------------------------------


def test_expanded_and_strided_gradients():
    q, kv = made(1, 24, 2, 32), made(1, 24, 2, 2, 32)
    wanted, _ = reference(q, *kv.unbind(2))
    lathe.torch.stats(reset=True)
    for run in (lambda: flash_attn.flash_attn_kvpacked_func(q, kv),
                lambda: flash_attn.flash_attn_func(q, *kv.unbind(2))):
        compare(run(), wanted, (q, kv), torch.ones(1).bfloat16().expand(1, 24, 2, 32))
        assert lathe.torch.stats(reset=True) == {"copied to contiguous rows": 1}
        compare(run(), wanted, (q, kv), made(1, 2, 24, 32).detach().transpose(1, 2))
        assert lathe.torch.stats(reset=True) == {}


def test_inputs_that_are_views():
    heads_first = made(1, 2, 24, 32)
    columns = made(1, 24, 2, 64)
    k, v = columns[..., ::2], heads_first.transpose(1, 2)
    q = heads_first[:, :1].expand(1, 4, 24, 32).transpose(1, 2)
    lathe.torch.stats(reset=True)
    compare(flash_attn.flash_attn_func(q, k, v), reference(q, k, v)[0], (heads_first, columns))
    assert lathe.torch.stats(reset=True) == {"copied to contiguous rows": 2}, "k and q, not v"


def test_results_are_changed_in_place():
    qkv = made(1, 24, 3, 2, 20)  # a width that is padded: the backward reads another tensor
    for run in (lambda: flash_attn.flash_attn_qkvpacked_func(qkv),
                lambda: flash_attn.flash_attn_func(*qkv.unbind(2)),
                lambda: flash_attn_4.flash_attn_func(*qkv.unbind(2), return_lse=True)[0]):
        out = run()
        out += 1.0
        out.sum().backward()
        assert qkv.grad.isfinite().all()
    qkv = made(1, 24, 3, 2, 32)
    with torch.no_grad():
        out = flash_attn.flash_attn_qkvpacked_func(qkv)
        out += 1.0
    out = flash_attn.flash_attn_qkvpacked_func(qkv)
    out += 1.0  # the backward reads what was changed, as flash_attn's does: torch says so
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_deterministic_algorithms():
    q = made(1, 24, 2, 32)
    torch.use_deterministic_algorithms(True)
    try:
        compare(flash_attn.flash_attn_func(q, q, q), reference(q, q, q)[0], (q,))
    finally:
        torch.use_deterministic_algorithms(False)


def test_no_queries_and_no_keys():
    q, k = made(2, 5, 2, 32), made(2, 0, 2, 32)
    out = flash_attn.flash_attn_func(q, k, k)
    assert torch.equal(out, torch.zeros_like(out))
    assert flash_attn.flash_attn_func(k, q, q).shape == k.shape
