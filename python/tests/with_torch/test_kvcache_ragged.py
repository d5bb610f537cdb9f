# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""lathe.compat's attention over caches in which sequences have different numbers of queries."""
import pytest
import torch

import lathe
import lathe.torch
from attention import error, reference
from caches import BOUND, Pages, made, rows
from lathe.compat import flash_attn, flash_attn_3, flash_attn_4, vllm


@pytest.mark.parametrize("starts", [[0, 45, 50], [0, 5, 7], [0, 3, 6], [0, 1, 2], [0, 1, 30]],
                         ids=str)
def test_vllm(starts):
    """Pages are read where they lie, whatever the numbers of queries are."""
    longest = max(b - a for a, b in zip(starts, starts[1:]))
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
    assert lathe.torch.stats() == {"cast sinks to float32": 1}
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


@pytest.mark.parametrize("queries", [1, 3, 20])
@pytest.mark.parametrize("change", [lambda out: out.float(), lambda out: out.expand(5, -1, -1, -1),
                                    lambda out: out[:1], lambda out: out[..., :1],
                                    lambda out: out.to("meta")],
                         ids=["dtype", "rank", "rows", "width", "device"])
def test_an_out_of_another_shape_dtype_or_device(queries, change):
    """However the queries are computed, out is neither cast nor broadcast."""
    pages, cu = Pages(), torch.tensor([0, queries, 2 * queries]).int()
    q = made(2 * queries, 4, 32)
    out = change(torch.full_like(q, 7.0))
    before = out.clone()
    with pytest.raises(lathe.InvalidArgument, match=r"^out has shape .*, dtype .*; allowed are "
                                                    rf"\[{2 * queries}, 4, 32\], torch.float16"):
        vllm.flash_attn_varlen_func(q, pages.k, pages.v, queries, cu, 64, seqused_k=pages.lengths,
                                    causal=True, block_table=pages.table, out=out)
    assert out.is_meta or torch.equal(out, before)


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


@pytest.mark.parametrize("packed_q, packed_new", [(True, False), (False, True)])
def test_one_of_queries_and_new_keys_is_ragged(packed_q, packed_new):
    pages, cu = Pages(lengths=(20, 44)), torch.tensor([0, 1, 4]).int()
    q = made(4, 4, 32) if packed_q else made(2, 2, 4, 32)
    k, v = (made(*((4,) if packed_new else (2, 2)), 2, 32, seed=seed) for seed in (1, 2))
    out = flash_attn_3.flash_attn_with_kvcache(
        q, pages.k, pages.v, k, v, cache_seqlens=pages.lengths, page_table=pages.table,
        cu_seqlens_q=cu if packed_q else None, cu_seqlens_k_new=cu if packed_new else None,
        max_seqlen_q=3, causal=True)
    pages.lengths += cu.diff() if packed_new else 2
    for b in range(2):
        new = k[cu[b]:cu[b + 1]] if packed_new else k[b]
        assert torch.equal(list(pages.keys(b, int(pages.lengths[b])))[0][0, -len(new):], new)
    each = [[x[None, cu[b]:cu[b + 1]] for b in range(2)] if packed_q else rows(x) for x in (out, q)]
    pages.expect(*each, causal=True)


def test_the_host_waits_where_memory_would_be_large(monkeypatch):
    monkeypatch.setattr("lathe.compat._ragged._MOST_BYTES", 0)
    pages, q = Pages(), made(2, 3, 4, 32)
    lathe.torch.stats(reset=True)
    out, _ = flash_attn_4.flash_attn_varlen_func(
        q, pages.k, pages.v, seqused_q=torch.tensor([2, 3]).int(), seqused_k=pages.lengths,
        page_table=pages.table)
    found = lathe.torch.stats()
    assert found["waited for the device: lengths"] == 1
    assert found["gathered keys and values from pages"] == 1
    pages.expect([out[:1, :2], out[1:]], [q[:1, :2], q[1:]])


def test_keys_interleaved_over_ranks():
    """Decode context parallelism: each rank has every other key, and lse merges the results."""
    pages, cu, world = Pages(), torch.tensor([0, 3, 4]).int(), 2
    q = made(4, 4, 32)
    results = []
    for rank in range(world):
        keys = [pages.keys(b, int(pages.lengths[b])) for b in range(2)]
        parts = [[each[0, rank::world] for each in pair] for pair in keys]
        used = torch.tensor([len(k) for k, _ in parts]).int()
        page, most = 16, -(-int(used.max()) // 16)
        cache = [torch.zeros(2 * most * page, 2, 32).half() for _ in range(2)]
        for b, part in enumerate(parts):
            for room, rows_of in zip(cache, part):
                room[b * most * page:b * most * page + len(rows_of)] = rows_of
        k, v = (each.view(2 * most, page, 2, 32) for each in cache)
        table = torch.arange(2 * most).view(2, most).int()
        out, lse = vllm.flash_attn_varlen_func(
            q, k, v, 3, cu, 64, seqused_k=used, causal=True, block_table=table, cp_rank=rank,
            return_softmax_lse=True, cp_world_size=world, cp_tot_seqused_k=pages.lengths)
        results.append((out.double(), lse.double()))
    lse = torch.logsumexp(torch.stack([each for _, each in results]), 0)
    out = sum(each * (part - lse).exp().t().unsqueeze(2) for each, part in results)
    pages.expect([out[None, cu[b]:cu[b + 1]] for b in range(2)],
                 [q[None, cu[b]:cu[b + 1]] for b in range(2)], causal=True)
    with pytest.raises(lathe.Unsupported, match="^cp_world_size is 2.*cp_tot_seqused_k"):
        vllm.flash_attn_varlen_func(q, pages.k, pages.v, 3, cu, 64, seqused_k=pages.lengths,
                                    block_table=pages.table, cp_world_size=2)
    with pytest.raises(lathe.InvalidArgument, match="^cp_rank is 2; allowed are 0 to 1"):
        vllm.flash_attn_varlen_func(q, pages.k, pages.v, 3, cu, 64, seqused_k=pages.lengths,
                                    block_table=pages.table, cp_world_size=2, cp_rank=2,
                                    cp_tot_seqused_k=pages.lengths)


@pytest.mark.parametrize("seed", range(24))
def test_any_offsets(seed):
    """Sequences of any lengths, with rows of padding, whatever the caller says of the longest."""
    random = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, (2, 4, 8)[seed % 3], (6,), generator=random)
    cu = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int()
    spare = int(torch.randint(0, 4, (1,), generator=random))
    q, page = made(int(cu[-1]) + spare, 4, 32), 8
    k, v = made(9, page, 2, 32), made(9, page, 2, 32, seed=1)
    used = torch.randint(1, 3 * page, (6,), generator=random).int()
    table = torch.stack([torch.randperm(9, generator=random)[:3] for _ in range(6)]).int()
    causal, sinks = seed % 2 == 0, made(4).float() if seed % 4 < 2 else None
    for longest in {1, 3, int(lengths.max()), 50}:
        out, lse = vllm.flash_attn_varlen_func(
            q, k, v, longest, cu, 0, seqused_k=used, block_table=table, causal=causal, s_aux=sinks,
            return_softmax_lse=True)
        assert (out[cu[-1]:] == 0).all() and (lse[:, cu[-1]:] == -torch.inf).all()
        for b in range(6):
            part, pages = slice(cu[b], cu[b + 1]), table[b].long()
            wanted, logs = reference(
                q[None, part], *(each[pages].flatten(0, 1)[None, :used[b]] for each in (k, v)),
                causal=causal, sinks=sinks)
            if lengths[b]:
                assert (out[None, part].double() - wanted).abs().max() < 5e-3
                torch.testing.assert_close(lse[None, :, part].double(), logs, atol=5e-3, rtol=0)


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
