# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""lathe.compat's attention over caches: rows, pages, appended keys."""
import pytest
import torch

import golden
import lathe
import lathe.torch
from attention import error, reference
from caches import BOUND, Pages, made, rows
from lathe.compat import flash_attn, flash_attn_3
from tensors import to_numpy, to_torch

# ---- queries of one length -----------------------------------------------------------------------


@pytest.mark.parametrize("module, name", [(flash_attn, "block_table"),
                                          (flash_attn_3, "page_table")])
@pytest.mark.parametrize("new, count", [(3, {}), (2, {"appended by a call of its own": 1})])
def test_pages_and_appended_keys(module, name, new, count):
    pages = Pages()
    q, k, v = made(2, 3, 4, 32), made(2, new, 2, 32, seed=5), made(2, new, 2, 32, seed=6)
    lathe.torch.stats(reset=True)
    out, lse = module.flash_attn_with_kvcache(q, pages.k, pages.v, k, v, causal=True, num_splits=2,
                                              cache_seqlens=pages.lengths, **{name: pages.table},
                                              return_softmax_lse=True)
    assert lathe.torch.stats() == count and lse.shape == (2, 4, 3)
    for b in range(2):
        keys, values = pages.keys(b, int(pages.lengths[b]) + new)
        assert torch.equal(keys[0, -new:], k[b]) and torch.equal(values[0, -new:], v[b])
    pages.expect(rows(out), rows(q), new, causal=True)


@pytest.mark.parametrize("lengths", [None, 20, torch.tensor([20, 11]).int(),
                                     torch.tensor([20, 11])])
def test_rows_and_lengths(lengths):
    q, k, v = made(2, 1, 4, 32), made(2, 24, 2, 32), made(2, 24, 2, 32, seed=1)
    out = flash_attn.flash_attn_with_kvcache(q, k, v, cache_seqlens=lengths, softcap=4.0)
    for b in range(2):
        n = 24 if lengths is None else int(torch.as_tensor(lengths).expand(2)[b])
        wanted, _ = reference(q[b:b + 1], k[b:b + 1, :n], v[b:b + 1, :n], softcap=4.0)
        assert error(out[b:b + 1], wanted) < BOUND


def test_chosen_rows():
    q, k, v = made(2, 2, 4, 32), made(5, 24, 2, 32), made(5, 24, 2, 32, seed=1)
    chosen = torch.tensor([4, 1]).int()
    slopes = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]])
    new = made(2, 2, 2, 32, seed=7)
    before = k[0].clone()
    out = flash_attn.flash_attn_with_kvcache(q, k, v, new, new, cache_seqlens=9, causal=True,
                                             cache_batch_idx=chosen, alibi_slopes=slopes)
    for b, row in enumerate(chosen.tolist()):
        assert torch.equal(k[row, 9:11], new[b]) and torch.equal(v[row, 9:11], new[b])
        wanted, _ = reference(q[b:b + 1], k[row:row + 1, :11], v[row:row + 1, :11], causal=True,
                              slopes=slopes[b])
        assert error(out[b:b + 1], wanted) < BOUND
    assert torch.equal(k[0], before)


def test_chosen_rows_of_a_page_table():
    pages, q = Pages(), made(2, 1, 4, 32)
    table, chosen = pages.table, torch.tensor([1, 0]).int()
    lathe.torch.stats(reset=True)
    out = flash_attn_3.flash_attn_with_kvcache(q, pages.k, pages.v, cache_seqlens=pages.lengths,
                                               page_table=table, cache_batch_idx=chosen)
    assert lathe.torch.stats() == {"chose rows of the page table": 1}
    pages.table = table[chosen.long()]
    pages.expect(rows(out), rows(q))


def test_odd_width_and_inputs_that_require_gradients():
    pages = Pages(width=20)
    q, new = made(2, 1, 4, 20).requires_grad_(), made(2, 1, 2, 20)
    out = flash_attn.flash_attn_with_kvcache(q, pages.k, pages.v, new, new, causal=True,
                                             cache_seqlens=pages.lengths, block_table=pages.table)
    assert not out.requires_grad
    pages.expect(rows(out), rows(q), 1, causal=True)


@pytest.mark.parametrize("width, queries, new", [(32, 1, 1), (32, 1, 2), (20, 2, 2)])
@pytest.mark.parametrize("packed", [False, True])
def test_padding_stays_without_keys_when_keys_are_appended(width, queries, new, packed):
    """However keys are appended, a sequence of a negative length gets none and sees none."""
    caches = [made(4, 16, 2, width, seed=seed) for seed in (0, 1)]
    before = [each.clone() for each in caches]
    table = torch.tensor([[0, 1], [2, 3]]).int()
    q, k, v = (made(2, rows_, 2, width, seed=5) for rows_ in (queries, new, new))
    ragged = {}
    if packed:
        q, k, v = (each.flatten(0, 1) for each in (q, k, v))
        ragged = {"cu_seqlens_q": torch.arange(3).int() * queries, "max_seqlen_q": queries,
                  "cu_seqlens_k_new": torch.arange(3).int() * new}
    out, lse, *_ = flash_attn_3.flash_attn_with_kvcache(
        q, *caches, k, v, page_table=table, cache_seqlens=torch.tensor([5, -1]).int(), causal=True,
        return_softmax_lse=True, **ragged)
    assert not out.view(2, -1)[1].any() and out.view(2, -1)[0].any()
    assert torch.all(lse.unflatten(1, (2, -1))[:, 1] == -torch.inf if packed
                     else lse[1] == -torch.inf)
    for found, held in zip(caches, before):
        assert torch.equal(found[1:], held[1:]) and not torch.equal(found[0], held[0])


def test_keys_past_the_block_table():
    pages = Pages(lengths=(64, 3))
    q, new = made(2, 1, 4, 32), made(2, 1, 2, 32)
    run = flash_attn.flash_attn_with_kvcache
    given = dict(cache_seqlens=pages.lengths, block_table=pages.table)
    run(q, pages.k, pages.v, **given)
    with pytest.raises(RuntimeError, match="reach 65; block_table has 4 pages of 16.*up to 64"):
        run(q, pages.k, pages.v, new, new, **given)
    with pytest.raises(lathe.InvalidArgument, match="k is given, but v is not"):
        run(q, pages.k, pages.v, new, **given)
    with pytest.raises(AssertionError, match="k_cache must have contiguous last dimension"):
        run(q, pages.k.transpose(1, 3), pages.v, **given)
    with pytest.raises(lathe.InvalidArgument, match="cache_batch_idx and a block table"):
        run(q, pages.k, pages.v, cache_batch_idx=torch.tensor([0, 1]).int(), **given)


@pytest.mark.parametrize("file", golden.cases("flash_attention_decode"))
def test_golden(file):
    case = golden.load(file)
    tensors = {name: to_torch(array) for name, array in case.inputs.items()}
    out, lse = flash_attn.flash_attn_with_kvcache(
        tensors["q"], tensors["k_cache"], tensors["v_cache"], tensors.get("k_new"),
        tensors.get("v_new"), cache_seqlens=tensors["cache_seqlens"],
        block_table=tensors["block_table"], return_softmax_lse=True, **case.options)
    found = {**tensors, "out": out, "lse": lse}
    case.compare({name: to_numpy(each) for name, each in found.items()})


def test_compiled_where_torch_appends():
    def call(q, cache, values, k, v, lengths):
        return flash_attn.flash_attn_with_kvcache(q, cache, values, k, v, cache_seqlens=lengths,
                                                  causal=True)

    q, k = made(2, 3, 4, 32), made(2, 2, 2, 32)
    caches = [[made(2, 24, 2, 32), made(2, 24, 2, 32, seed=1)] for _ in range(2)]
    lengths = torch.tensor([9, 20]).int()
    plain = call(q, *caches[0], k, k, lengths)
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    compiled = compiled(q, *caches[1], k, k, lengths)
    assert torch.equal(plain, compiled)
    assert all(torch.equal(*pair) for pair in zip(*caches))
