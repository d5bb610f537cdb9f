# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""lathe.compat's attention over caches: rows, pages, appended keys, ragged queries."""
import pytest
import torch

import golden
import lathe
import lathe.torch
from attention import error, reference
from lathe.compat import flash_attn, flash_attn_3, flash_attn_4, vllm
from tensors import to_numpy, to_torch

BOUND = 2e-3
WAITED = "waited for the device: lengths"


def made(*shape, seed=0, dtype=torch.float16):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(dtype)


class Pages:
    """A cache in pages of 16 for two sequences, and the same keys in rows."""

    def __init__(self, lengths=(33, 60), width=32, values=None):
        self.k, self.v = made(9, 16, 2, width), made(9, 16, 2, values or width, seed=1)
        order = torch.randperm(9, generator=torch.Generator().manual_seed(2))
        self.table = order[:8].view(2, 4).int()
        self.lengths = torch.tensor(lengths).int()

    def keys(self, b, length):
        """Returns keys and values of a sequence as batches of one."""
        at = self.table[b].long()
        return (cache[at].flatten(0, 1)[None, :length] for cache in (self.k, self.v))

    def expect(self, out, q, added=0, **options):
        """Compares rows of a result with float64; q and out are lists of batches of one."""
        for b in range(2):
            k, v = self.keys(b, int(self.lengths[b]) + added)
            assert error(out[b], reference(q[b], k, v, **options)[0]) < BOUND


def rows(tensor):
    return [tensor[b:b + 1] for b in range(2)]


# ---- queries of one length -----------------------------------------------------------------------


@pytest.mark.parametrize("module, name", [(flash_attn, "block_table"),
                                          (flash_attn_3, "page_table")])
@pytest.mark.parametrize("new, count", [(3, {}), (2, {"appended to the cache by torch": 1})])
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


# ---- ragged queries ------------------------------------------------------------------------------


@pytest.mark.parametrize("starts, longest, count", [
    ([0, 5, 7], 5, {"gathered keys and values from pages": 1}), ([0, 3, 6], 3, {}),
    ([0, 1, 2], 1, {})], ids=["gathered", "three each", "one each"])
def test_vllm(starts, longest, count):
    pages, cu = Pages(values=64), torch.tensor(starts).int()
    q = made(starts[-1], 4, 32)
    room = torch.full((starts[-1], 4, 80), 7.0).half()
    sinks = made(4, dtype=torch.bfloat16)
    lathe.torch.stats(reset=True)
    out, lse = vllm.flash_attn_varlen_func(
        q, pages.k, pages.v, longest, cu, 64, seqused_k=pages.lengths, causal=True,
        window_size=[20, 0], block_table=pages.table, out=room[..., :64], return_softmax_lse=True,
        fa_version=3, s_aux=sinks, k_descale=torch.ones(2, 2), num_splits=1,
        scheduler_metadata=vllm.get_scheduler_metadata(2, 5, 64, 4, 2, 32, pages.lengths))
    assert lathe.torch.stats() == {"cast sinks to float32": 1, **count}
    assert out.data_ptr() == room.data_ptr() and (room[..., 64:] == 7.0).all()
    parts = [q[None, cu[b]:cu[b + 1]] for b in range(2)]
    pages.expect([out[None, cu[b]:cu[b + 1]] for b in range(2)], parts, causal=True, left=20,
                 sinks=sinks)
    for b in range(2):
        k, v = pages.keys(b, int(pages.lengths[b]))
        wanted = reference(parts[b], k, v, causal=True, left=20, sinks=sinks)[1]
        assert (lse[None, :, cu[b]:cu[b + 1]] - wanted).abs().max() < 5e-3


def test_vllm_without_pages():
    cu = torch.tensor([0, 9, 20]).int()
    q, k, v = made(20, 4, 36), made(20, 2, 36), made(20, 2, 36, seed=1)
    out = torch.empty(20, 4, 36).half()
    assert vllm.flash_attn_varlen_func(q, k, v, 11, cu, 11, cu, causal=True, out=out) is out
    for b in range(2):
        part = slice(cu[b], cu[b + 1])
        wanted, _ = reference(q[None, part], k[None, part], v[None, part], causal=True)
        assert error(out[None, part], wanted) < BOUND
    assert vllm.is_fa_version_supported(4) and vllm.fa_version_unsupported_reason(2) is None
    with pytest.raises(ValueError, match="Unsupported FA version: 5"):
        vllm.flash_attn_varlen_func(q, k, v, 11, cu, 11, cu, fa_version=5)
    with pytest.raises(AssertionError, match="cu_seqlens_k or seqused_k must be provided"):
        vllm.flash_attn_varlen_func(q, k, v, 11, cu, 11)


def test_other_ways_to_ragged_queries():
    pages, cu = Pages(), torch.tensor([0, 5, 7]).int()
    q = made(7, 4, 32)
    cu_k = torch.tensor([0, 33, 93]).int()
    parts = [q[None, cu[b]:cu[b + 1]] for b in range(2)]
    for out in (
            flash_attn.flash_attn_varlen_func(q.clone().requires_grad_(), pages.k, pages.v, cu,
                                              cu_k, 5, 60, causal=True, block_table=pages.table),
            flash_attn_3.flash_attn_with_kvcache(q, pages.k, pages.v, cache_seqlens=pages.lengths,
                                                 page_table=pages.table, cu_seqlens_q=cu,
                                                 max_seqlen_q=5, causal=True),
            flash_attn_4.flash_attn_varlen_func(q, pages.k, pages.v, cu_seqlens_q=cu, causal=True,
                                                seqused_k=pages.lengths,
                                                page_table=pages.table)[0]):
        assert not out.requires_grad
        pages.expect([out[None, cu[b]:cu[b + 1]] for b in range(2)], parts, causal=True)
    q = made(2, 3, 4, 32)
    out, lse = flash_attn_4.flash_attn_varlen_func(q, pages.k, pages.v, seqused_k=pages.lengths,
                                                   page_table=pages.table, causal=True)
    pages.expect(rows(out), rows(q), causal=True)
    used = torch.tensor([2, 3]).int()
    out, _ = flash_attn_4.flash_attn_varlen_func(q, pages.k, pages.v, seqused_q=used,
                                                 seqused_k=pages.lengths, page_table=pages.table)
    pages.expect([out[:1, :2], out[1:]], [q[:1, :2], q[1:]])
    assert (out[0, 2] == 0).all()


def test_ragged_queries_with_ragged_new_keys():
    pages, cu = Pages(lengths=(20, 44)), torch.tensor([0, 5, 7]).int()
    q, k, v = made(7, 4, 32), made(7, 2, 32), made(7, 2, 32, seed=1)
    out = flash_attn_3.flash_attn_with_kvcache(
        q, pages.k, pages.v, k, v, cache_seqlens=pages.lengths, page_table=pages.table,
        cu_seqlens_q=cu, cu_seqlens_k_new=cu, max_seqlen_q=5, causal=True)
    pages.lengths += cu.diff()
    assert torch.equal(list(pages.keys(1, 46))[0][0, -2:], k[5:])
    pages.expect([out[None, cu[b]:cu[b + 1]] for b in range(2)],
                 [q[None, cu[b]:cu[b + 1]] for b in range(2)], causal=True)


def test_the_host_waits_where_memory_would_be_large(monkeypatch):
    monkeypatch.setattr("lathe.compat._ragged._MOST_BYTES", 0)
    lathe.torch.stats(reset=True)
    test_vllm([0, 5, 7], 5, {"gathered keys and values from pages": 1, WAITED: 1})


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


def test_compiled_over_pages_with_ragged_queries():
    pages, cu = Pages(), torch.tensor([0, 5, 7]).int()
    q, longest = made(7, 4, 32), 5

    def call(q, out):
        vllm.flash_attn_varlen_func(q, pages.k, pages.v, longest, cu, 64, seqused_k=pages.lengths,
                                    block_table=pages.table, out=out)
        return out + 0

    plain = call(q, torch.empty_like(q))
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")(q, torch.empty_like(q))
    assert torch.equal(plain, compiled)
