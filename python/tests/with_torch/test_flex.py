# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""lathe.flex against attention written out in float64, with the same mods on whole tensors."""
import functools

import pytest
import torch
from torch.nn.attention import flex_attention as torch_flex
from torch.nn.attention.flex_attention import and_masks, create_block_mask, or_masks

import lathe
import lathe.torch
from lathe.flex import flex_attention
from flex_reference import reference
from signatures import bare

SIGNATURE = ("(query, key, value, score_mod=None, block_mask=None, scale=None, enable_gqa=False, "
             "return_lse=False, kernel_options=None, *, return_aux=None)")
S = 40  # tokens


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


SLOPES = randn(4, seed=10).abs()
BIAS = randn(4, 2 * S, seed=11)
DOCUMENT = torch.cat([torch.full((n,), i, dtype=torch.int32) for i, n in enumerate((11, 9, 20))])
FACTOR = torch.tensor(0.25)
ALLOWED = torch.arange(S) % 5 != 3
TABLE = randn(2, 4, S, seed=12).bfloat16()


def capped_alibi(score, b, h, q, k):
    score = torch.tanh(score / 2) * 2 + SLOPES[h] * (k - q)
    return torch.where(q >= k, score, -float("inf"))


def relative_bias(score, b, h, q, k):
    return score + BIAS[h, q - k + S]


def elementary(score, b, h, q, k):
    x = torch.sigmoid(score) + torch.exp(-score * score) + torch.sqrt(score * score + FACTOR)
    x = torch.minimum(x, score + 9) + torch.clamp(score, -0.5, 0.75) + torch.relu(score - 0.25)
    return x + 1 / (2 + score.abs())


def more_functions(score, b, h, q, k):
    x = torch.log(score.abs() + 1.5) + torch.rsqrt(score**2 + 2) + torch.exp2(score / 4)
    return x + torch.sin(score) - torch.maximum(score, -score) + torch.erf(score)


def integers(score, b, h, q, k):
    near = (q - k) // 3 + (q - k) % 5 - torch.fmod(k - q, 4) + (q & 3) + (k ^ 1) + (q >> 1) % 2
    odd = ((q % 2 == 1) | (k != q)) & ~(k < b) & torch.logical_or(q <= k + 4, h > 1)
    return torch.where(odd, score + 0.01 * near + torch.floor(q / 7), score - 1) + (
        TABLE[b][h][k] if score.dim() == 0 else TABLE[b, h, k])


MODS = {"plain": None, "capped_alibi": capped_alibi, "relative_bias": relative_bias,
        "elementary": elementary, "integers": integers}


def inputs(dtype=torch.float16, heads=(4, 2), width=32, batch=2, queries=S, keys=S):
    q = randn(batch, queries, heads[0], width).to(dtype).transpose(1, 2)  # [B,H,S,D] either way
    k, v = (randn(batch, heads[1], keys, width, seed=i).to(dtype) for i in (1, 2))
    return [each.detach().requires_grad_() for each in (q, k, v)]


def close(found, wanted, dtype=torch.float16, factor=1.0):
    bound = factor * {torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float32: 1e-4}[dtype]
    rms = (found.double() - wanted).pow(2).mean().sqrt() / (wanted.pow(2).mean().sqrt() + 1e-12)
    assert rms < bound, float(rms)


def test_signature():
    assert bare(flex_attention) == SIGNATURE


@pytest.mark.parametrize("name", MODS)
def test_score_mod(name):
    given = inputs()
    out, lse = flex_attention(*given, MODS[name], enable_gqa=True, return_lse=True)
    wide = [each.detach().double().requires_grad_() for each in given]
    out_wide, lse_wide = reference(*wide, MODS[name])
    assert out.shape == (2, 4, S, 32) and lse.shape == (2, 4, S) and lse.dtype == torch.float32
    close(out, out_wide)
    close(lse, lse_wide)
    upstream, of_lse = randn(2, 4, S, 1, seed=5).half().expand_as(out), randn(2, 4, S, seed=6)
    torch.autograd.backward((out, lse), (upstream, of_lse))
    torch.autograd.backward((out_wide, lse_wide), (upstream.double(), of_lse.double()))
    for each, exact in zip(given, wide):
        assert each.grad.shape == each.shape and each.grad.dtype == each.dtype
        close(each.grad, exact.grad, factor=2)


def test_more_functions():
    q, k, v = (each.detach() for each in inputs(heads=(4, 4)))
    wanted, _ = reference(q.double(), k.double(), v.double(), more_functions)
    close(flex_attention(q, k, v, more_functions), wanted)


def causal(b, h, q, k):
    return q >= k


def documents(b, h, q, k):
    return DOCUMENT[q] == DOCUMENT[k]


def window(b, h, q, k):
    return (q - k).abs() <= 12


@pytest.mark.parametrize("mask", [
    and_masks(documents, window, causal),
    or_masks(and_masks(causal, functools.partial(lambda n, b, h, q, k: q - k < n, 5)),
             lambda b, h, q, k: ALLOWED[k]),
], ids=["documents", "partial"])
def test_mask_mod(mask):
    given = inputs(torch.float32, heads=(4, 4), width=64)
    block_mask = create_block_mask(mask, None, None, S, S, device="cpu")
    out, lse = flex_attention(*given, block_mask=block_mask, scale=0.2, return_lse=True)
    wide = [each.detach().double().requires_grad_() for each in given]
    out_wide, lse_wide = reference(*wide, mask=mask, scale=0.2)
    close(out, out_wide, torch.float32)
    close(lse, lse_wide, torch.float32)
    upstream = randn(*out.shape, seed=5)
    out.backward(upstream)
    out_wide.backward(upstream.double())
    for each, exact in zip(given, wide):
        close(each.grad, exact.grad, torch.float32)


def test_rows_without_a_key_and_one_batch_of_keys():
    q, k, v = (each.detach() for each in inputs())
    mask = create_block_mask(lambda b, h, q, k: (q >= k) & (k >= 7 * b + 3), 2, None, S, S,
                             device="cpu")
    out, lse = flex_attention(q, k[:1], v[:1], block_mask=mask, enable_gqa=True, return_lse=True)
    wanted, exact = reference(q.double(), k[:1].double().expand(2, -1, -1, -1),
                              v[:1].double().expand(2, -1, -1, -1), mask=mask.mask_mod)
    close(out, wanted)
    assert torch.equal(lse.isinf(), exact.isinf()) and (out[1, :, :10] == 0).all()


def test_captures_are_read_anew():
    """The text of a mod is kept, what its tensors hold is not."""
    q, k, v = (each.detach() for each in inputs())
    for seed in (1, 2):
        bias = randn(4, S, seed=seed)

        def mod(score, b, h, q, k, bias=bias):
            return score + bias[h, k]

        out = flex_attention(q, k, v, mod, enable_gqa=True)
        wide = [each.double() for each in (q, k, v)]
        close(out, reference(*wide, mod)[0])
        bias.mul_(-1)  # in place
        close(flex_attention(q, k, v, mod, enable_gqa=True), reference(*wide, mod)[0])


def test_captures_that_were_one_tensor():
    q, k, v = (each.detach() for each in inputs())
    first, second = randn(4, seed=1), randn(4, seed=2)
    for a, b in ((first, first), (first, second)):
        def mod(score, batch, h, i, j):
            return score * a[h] + b[h] * (i - j)
        wanted = reference(q.double(), k.double(), v.double(), mod)[0]
        close(flex_attention(q, k, v, mod, enable_gqa=True), wanted)


def test_constants_are_part_of_the_text():
    q, k, v = (each.detach() for each in inputs())
    for slope in (0.5, -0.25):
        def mod(score, b, h, q, k):
            return score + slope * (k - q)
        wanted = reference(q.double(), k.double(), v.double(), mod)[0]
        close(flex_attention(q, k, v, mod, enable_gqa=True), wanted)


def line_of(function):
    return f"test_flex.py:{function.__code__.co_firstlineno + 1}"


def test_refusals():
    q, k, v = inputs(heads=(4, 4))
    learned = torch.nn.Parameter(randn(4))

    def with_parameter(score, b, h, q, k):
        return score + learned[h]

    def with_branch(score, b, h, q, k):
        return score if q > k else -score

    def with_sort(score, b, h, q, k):
        return score + torch.special.bessel_j0(score)

    def with_many(score, b, h, q, k):
        return score + sum(each[h] for each in many)

    def with_row(score, b, h, q, k):
        return score + (BIAS[h] * 2)[k]

    def with_decimals(score, b, h, q, k):
        return torch.round(score, decimals=2)

    many = [randn(4, seed=i) for i in range(5)]
    cases = {with_parameter: "requires grad.*detached", with_branch: "use torch.where",
             with_sort: "bessel_j0.*has no text of the device", with_many: "over 4 tensors",
             with_row: "shape.*outside", with_decimals: "round.decimals with more than"}
    for mod, words in cases.items():
        with pytest.raises(lathe.Unsupported, match=words) as caught:
            flex_attention(q, k, v, mod)
        assert "test_flex.py:" in str(caught.value), caught.value
    with pytest.raises(lathe.Unsupported) as caught:
        flex_attention(q, k, v, with_sort)
    assert line_of(with_sort) in str(caught.value)
    with pytest.raises(lathe.Unsupported, match='"FLASH"; allowed is "AUTO"'):
        flex_attention(q, k, v, kernel_options={"BACKEND": "FLASH"})
    with pytest.raises(ValueError, match="same number of heads"):
        flex_attention(q, k[:, :2], v[:, :2])
    with pytest.raises(ValueError, match="multiple of kv heads"):
        flex_attention(q, k[:, :3], v[:, :3], enable_gqa=True)
    with pytest.raises(TypeError, match="dropout"):
        flex_attention(q, k, v, dropout=0.1)


@pytest.mark.skipif(not hasattr(torch_flex, "AuxRequest"),
                    reason="this torch has no AuxRequest: torch 2.10 has it")
def test_outputs_by_request():
    q, k, v = inputs(torch.float32, heads=(4, 4))
    wanted, lse = flex_attention(q, k, v, capped_alibi, return_lse=True)
    out, aux = flex_attention(q, k, v, capped_alibi, return_aux=torch_flex.AuxRequest(lse=True))
    assert torch.equal(out, wanted) and torch.equal(aux.lse, lse)
    for each, exact in zip(torch.autograd.grad(out.sum() + aux.lse.sum(), (q, k, v)),
                           torch.autograd.grad(wanted.sum() + lse.sum(), (q, k, v))):
        assert torch.equal(each, exact)
    assert flex_attention(q, k, v, return_aux=torch_flex.AuxRequest())[1].lse is None
    with pytest.raises(lathe.Unsupported, match="max_scores"):
        flex_attention(q, k, v, return_aux=torch_flex.AuxRequest(max_scores=True))
    with pytest.raises(ValueError, match="both return_lse and return_aux"):
        flex_attention(q, k, v, return_lse=True, return_aux=torch_flex.AuxRequest(lse=True))


def test_statistics():
    q, k, v = inputs(heads=(4, 4))
    q, k, v = (each.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_()
               for each in (q, k, v))
    flex_attention(q, k, v, capped_alibi)
    lathe.torch.stats(reset=True)
    flex_attention(q, k, v, capped_alibi)
    assert lathe.torch.stats() == {}, "nothing is done around the kernel"
    flags = torch.ones(S, dtype=torch.bool)
    mask = create_block_mask(lambda b, h, q, k: flags[k], None, None, S, S, device="cpu")
    lathe.torch.stats(reset=True)
    flex_attention(q, k, v, block_mask=mask)
    assert lathe.torch.stats(reset=True) == {
        "cast a capture": 1, "wrote the text of a mod": 1, "laid out lists of blocks": 1}


def test_compile():
    given = inputs(heads=(4, 4))
    documents_now = DOCUMENT.clone()
    mask = create_block_mask(lambda b, h, q, k: (q >= k) & (documents_now[q] == documents_now[k]),
                             None, None, S, S, device="cpu")

    def step(q, k, v, mod):
        return flex_attention(q * 2, k, v, mod, mask).float()

    # In torch 2.6 a mod breaks the graph.
    compiled = torch.compile(step, fullgraph=lathe.flex._GRAPHS, backend="inductor")
    for mod in (relative_bias, capped_alibi):
        wanted = step(*given, mod)
        found = compiled(*given, mod)
        torch.testing.assert_close(found, wanted)
        for each, exact in zip(torch.autograd.grad(found.sum(), given),
                               torch.autograd.grad(wanted.sum(), given)):
            torch.testing.assert_close(each, exact)
    documents_now.zero_()  # a change in place is seen without another trace
    torch.testing.assert_close(compiled(*given, relative_bias), step(*given, relative_bias))
