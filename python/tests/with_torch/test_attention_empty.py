# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""lathe.compat's attention where there is nothing: no sequences, no rows, no keys, no pages."""
import pytest
import torch

from lathe.compat import flash_attn, flash_attn_3, flash_attn_4, flash_mla, vllm
from lathe.compat._torch_cp_balancers import (_create_default_load_balancer,
                                              _PerDocumentHeadTailLoadBalancer)


def zeros(*shape):
    return torch.zeros(shape, dtype=torch.float16)


def ints(*shape):
    return torch.zeros(shape, dtype=torch.int32)


def random(*shape):
    return torch.randn(shape).half()


CACHE = (4, 8, 2, 32)
META = flash_mla.FlashMLASchedMeta()


def varlen(rows, keys, sequences, module=flash_attn):
    def call():
        cu = ints(sequences + 1)
        q, k = random(rows, 4, 32).requires_grad_(), random(keys, 2, 32).requires_grad_()
        if module is vllm:
            out = vllm.flash_attn_varlen_func(q, k, k, 0, cu, 0, cu)
        elif module is flash_attn_4:
            out, _ = flash_attn_4.flash_attn_varlen_func(q, k, k, cu_seqlens_q=cu, cu_seqlens_k=cu)
        elif module is flash_attn_3:
            out = flash_attn_3.flash_attn_varlen_func(q, k, k, cu, cu, 0, 0, ints(sequences),
                                                      ints(sequences))
        else:
            out = flash_attn.flash_attn_varlen_func(q, k, k, cu, cu, 0, 0)
        for each in torch.autograd.grad(out, (q, k), torch.full_like(out, torch.nan)):
            assert (each == 0).all()
        return out
    return call


def whole(batch, queries, keys):
    def call():
        q = random(batch, queries, 4, 32).requires_grad_()
        k = random(batch, keys, 2, 32).requires_grad_()
        out = flash_attn.flash_attn_func(q, k, k, causal=True)
        for each in torch.autograd.grad(out, (q, k), torch.ones_like(out)):
            assert (each == 0).all()
        return out
    return call


def over_pages(rows, sequences, width, pages=4):
    cache = random(pages, *CACHE[1:])
    return lambda: vllm.flash_attn_varlen_func(
        random(rows, 4, 32), cache, cache, 1, ints(sequences + 1), 0, seqused_k=ints(sequences),
        block_table=ints(sequences, width), causal=True)


def cached(module, batch, queries, new, pages=4):
    def call():
        k, v = random(pages, *CACHE[1:]), random(pages, *CACHE[1:])
        before = k.clone()
        given = random(batch, new, 2, 32)
        out = module.flash_attn_with_kvcache(random(batch, queries, 4, 32), k, v, given, given,
                                             cache_seqlens=ints(batch), causal=True)
        assert torch.equal(k[batch:], before[batch:])
        return out
    return call


def packed_new(rows, sequences, new):
    def call():
        k, v = random(*CACHE), random(*CACHE)
        before = k.clone()
        out = flash_attn_3.flash_attn_with_kvcache(
            random(rows, 4, 32), k, v, random(new, 2, 32), random(new, 2, 32),
            cache_seqlens=ints(sequences), page_table=ints(sequences, 2), max_seqlen_q=1,
            cu_seqlens_q=ints(sequences + 1), cu_seqlens_k_new=ints(sequences + 1))
        assert torch.equal(k, before)
        return out
    return call


def latent(batch, queries, width=1, pages=3):
    return lambda: flash_mla.flash_mla_with_kvcache(
        random(batch, queries, 4, 576), random(pages, 8, 1, 576), ints(batch, width),
        ints(batch), 512, META)[0]


def lists(rows, keys, entries):
    return lambda: flash_mla.flash_mla_sparse_fwd(
        random(rows, 4, 576), random(keys, 1, 576), ints(rows, 1, entries) - 1, 0.1)[0]


MODULES = {"2": flash_attn, "3": flash_attn_3, "4": flash_attn_4, "vllm": vllm}
CASES = {
    **{f"packed, {rows} rows, {keys} keys, {n} sequences, {name}": varlen(rows, keys, n, module)
       for rows, keys, n in ((0, 0, 0), (3, 2, 0), (3, 0, 2), (0, 2, 2), (3, 2, 2))
       for name, module in MODULES.items()},
    "no sequences": whole(0, 4, 4), "no queries": whole(2, 0, 4), "no keys": whole(2, 4, 0),
    **{f"pages: {each}": over_pages(*each) for each in (
        (0, 0, 3), (3, 0, 3), (0, 2, 3), (3, 2, 0), (3, 2, 3), (90, 2, 0), (90, 2, 3), (90, 0, 1),
        (3, 2, 3, 0), (90, 2, 3, 0))},
    **{f"cache {name}: {each}": cached(MODULES[name], *each) for name in "23"
       for each in ((0, 1, 1), (0, 1, 2), (2, 0, 1), (2, 1, 0), (0, 1, 1, 0))},
    **{f"packed new keys: {each}": packed_new(*each) for each in (
        (0, 0, 0), (2, 0, 3), (2, 2, 0), (0, 2, 3), (2, 2, 3))},
    "latent, no sequences": latent(0, 1), "latent, no queries": latent(2, 0),
    "latent, no table": latent(2, 1, 0), "latent, no pages": latent(2, 1, 1, 0),
    "lists: no rows": lists(0, 5, 4), "lists: no keys": lists(3, 0, 4),
    "lists: no entries": lists(3, 5, 0),
}


@pytest.mark.parametrize("name", CASES)
def test_empty(name):
    out = CASES[name]()
    # New keys of a sequence without keys are the only ones that it sees.
    assert (out == 0).all() or name.startswith("cache") and out.isfinite().all()


def test_no_tokens_over_ranks():
    for balancer in (_create_default_load_balancer(0, 2, "cpu"),
                     _PerDocumentHeadTailLoadBalancer([[]], 2, "cpu")):
        for restore in (False, True):
            order = balancer._generate_indices(restore)
            assert order.shape == (1, 0) and zeros(0, 3).index_select(0, order[0]).shape == (0, 3)
