# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""lathe.compat.flash_mla against attention over gathered keys in float64, and golden files."""
import pytest
import torch

import golden
import lathe
import lathe.torch
from lathe.compat import flash_mla
from signatures import bare
from tensors import to_numpy, to_torch

SIGNATURES = {
    "get_mla_metadata": "(*args, **kwargs)",
    "flash_mla_with_kvcache":
        "(q, k_cache, block_table, cache_seqlens, head_dim_v, tile_scheduler_metadata, "
        "num_splits=None, softmax_scale=None, causal=False, is_fp8_kvcache=False, indices=None, "
        "attn_sink=None, extra_k_cache=None, extra_indices_in_kvcache=None, topk_length=None, "
        "extra_topk_length=None)",
    "flash_mla_sparse_fwd": "(q, kv, indices, sm_scale, d_v=512, attn_sink=None, topk_length=None, "
                            "indexer_topk=0)",
}
D, DV, H = 576, 512, 4


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature(name):
    assert bare(getattr(flash_mla, name)) == SIGNATURES[name]


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def reference(q, keys, lists, scale, sink=None):
    """Returns (out, max, lse without the sink) of rows q [T,H,D], with a list of keys for each."""
    outs, most, sums = [], [], []
    for row, entries in zip(q.double(), lists):
        chosen = keys.double()[[e for e in entries if 0 <= e < len(keys)]]
        scores = row @ chosen.T * scale
        lse = scores.logsumexp(-1)
        total = lse if sink is None else torch.logaddexp(lse, sink.double())
        weights = (scores - total[:, None]).exp().nan_to_num()
        outs.append(weights @ chosen[:, :DV])
        most.append(scores.amax(-1) if len(chosen) else lse)
        sums.append(lse.masked_fill(lse == -torch.inf, torch.inf))
    return torch.stack(outs), torch.stack(most), torch.stack(sums)


def close(found, wanted, bound):
    torch.testing.assert_close(found.double(), wanted, rtol=bound, atol=bound)


@pytest.mark.parametrize("has_sink", [False, True])
def test_sparse_fwd(has_sink):
    tokens, keys, topk = 6, 30, 16
    q, kv = randn(tokens, H, D), randn(keys, 1, D, seed=1)
    indices = torch.randint(-2, keys + 3, (tokens, 1, topk), dtype=torch.int32,
                            generator=torch.Generator().manual_seed(2))
    indices[2] = -1
    lengths = torch.tensor([16, 3, 16, 0, 9, 1], dtype=torch.int32)
    sink = torch.tensor([0.5, -torch.inf, torch.inf, 3.0]) if has_sink else None
    out, most, lse = flash_mla.flash_mla_sparse_fwd(q, kv, indices, 0.05, attn_sink=sink,
                                                    topk_length=lengths)
    lists = [row[0, :n].tolist() for row, n in zip(indices, lengths)]
    wanted = reference(q, kv[:, 0], lists, 0.05, sink)
    assert out.shape == (tokens, H, DV) and most.shape == lse.shape == (tokens, H)
    assert (out[2:4] == 0).all() and (lse[2:4] == torch.inf).all()
    assert (most[2:4] == -torch.inf).all()
    for found, exact, bound in zip((out, most, lse), wanted, (8e-3, 1e-4, 1e-4)):
        close(found, exact, bound)


def test_sparse_decode():
    q, cache = randn(2, 3, H, D), randn(5, 8, 1, D, seed=1)
    indices = torch.randint(-1, 40, (2, 3, 10), dtype=torch.int32,
                            generator=torch.Generator().manual_seed(2))
    lengths, sink = torch.tensor([10, 4], dtype=torch.int32), torch.tensor([0.5, 1.0, -2.0, 0.0])
    meta = flash_mla.get_mla_metadata()[0]
    out, lse = flash_mla.flash_mla_with_kvcache(q, cache, None, None, DV, meta, indices=indices,
                                                attn_sink=sink, topk_length=lengths)
    lists = [indices[b, i, :lengths[b]].tolist() for b in range(2) for i in range(3)]
    wanted, _, exact = reference(q.flatten(0, 1), cache.flatten(0, 1)[:, 0], lists, D**-0.5, sink)
    close(out, wanted.view(2, 3, H, DV), 8e-3)
    close(lse, exact.view(2, 3, H).transpose(1, 2), 1e-4)


@pytest.mark.parametrize("causal", [False, True])
def test_dense_decode(causal):
    q, cache = randn(3, 2, H, D), randn(9, 8, 1, D, seed=1)
    table = torch.tensor([[4, 0, 7], [8, 1, 0], [2, 0, 0]], dtype=torch.int32)
    lengths = torch.tensor([23, 9, 0], dtype=torch.int32)
    out, lse = flash_mla.flash_mla_with_kvcache(q, cache, table, lengths, DV,
                                                flash_mla.FlashMLASchedMeta(), causal=causal,
                                                softmax_scale=0.1)
    lists = [[int(table[b, j // 8]) * 8 + j % 8
              for j in range(max(0, int(lengths[b]) - (1 - i if causal else 0)))]
             for b in range(3) for i in range(2)]
    wanted, _, exact = reference(q.flatten(0, 1), cache.flatten(0, 1)[:, 0], lists, 0.1)
    close(out, wanted.view(3, 2, H, DV), 8e-3)
    close(lse, exact.view(3, 2, H).transpose(1, 2), 1e-4)


def places(options, q, k, indices, cu_seqlens_q=None, cu_seqlens_k=None, q_pos=None, **unused):
    """Returns the rows of all keys [T,topk] that the operator reads for a golden file; -1: none."""
    cu_q, cu_k = cu_seqlens_q, cu_seqlens_k
    if cu_q is None:
        cu_q, cu_k = (torch.arange(len(each) + 1) * each.shape[1] for each in (q, k))
    counts = cu_q.diff()
    sequence = torch.repeat_interleave(torch.arange(len(counts)), counts)  # of each row of q
    start, length = cu_k[sequence, None], cu_k.diff()[sequence, None]
    position = torch.arange(len(sequence)) - cu_q[sequence] - counts[sequence] + length[:, 0]
    block = options["block_size"]
    entries = indices.reshape(len(sequence), -1, 1)
    keys = (entries * block + torch.arange(block)).flatten(1)
    if options["index_space"] == "absolute":
        keys = keys - start
    seen = (keys >= 0) & (keys < length)
    if options["sparse_mode"] == 3:
        seen &= keys <= (position if q_pos is None else q_pos.flatten())[:, None]
    return torch.where(seen, keys + start, -1).int()


@pytest.mark.parametrize("file", golden.cases("sparse_flash_attention"))
def test_golden(file):
    """Values that are not the keys' first columns stand before them, where queries have zeros."""
    case = golden.load(file)
    tensors = {name: to_torch(array) for name, array in case.inputs.items()}
    q, k, v = tensors["q"], tensors["k"], tensors["v"]
    parts = [("q", "k"), ("q_rope", "k_rope")][:1 + ("q_rope" in tensors)]
    queries, keys = ([tensors[name].flatten(0, -3) for name in names] for names in zip(*parts))
    if not torch.equal(k, v):
        queries.insert(0, torch.zeros(*queries[0].shape[:2], v.shape[-1], dtype=q.dtype))
        keys.insert(0, v.flatten(0, -3))
    out, most, lse = flash_mla.flash_mla_sparse_fwd(
        torch.cat(queries, -1), torch.cat(keys, -1), places(case.options, **tensors).unsqueeze(1),
        case.options["scale"], v.shape[-1], tensors.get("sinks"))
    found = {"out": out.view(*q.shape[:-1], -1)}
    if "sinks" not in tensors:  # the peer leaves sinks out of the statistics
        lse = lse.masked_fill(lse == torch.inf, -torch.inf).view(q.shape[:-1])
        found |= {"lse": lse.transpose(-1, -2),
                  "softmax_max": most.view(case.wanted["softmax_max"].shape)}
    wanted = {name: case.wanted[name] for name in found}
    case._replace(wanted=wanted).compare({name: to_numpy(each) for name, each in found.items()})


def test_refusals_and_statistics():
    q, cache = randn(1, 1, H, D), randn(2, 8, 1, D)
    meta = flash_mla.get_mla_metadata(1, num_heads_q=4)[0]
    table, lengths = torch.zeros(1, 1, dtype=torch.int32), torch.tensor([5], dtype=torch.int32)
    rest = (q, cache, table, lengths, DV)
    indices = torch.zeros(1, 1, 4, dtype=torch.int32)
    with pytest.raises(AssertionError, match="must be of type FlashMLASchedMeta"):
        flash_mla.flash_mla_with_kvcache(*rest, None)
    with pytest.raises(AssertionError, match="causal must be False"):
        flash_mla.flash_mla_with_kvcache(*rest, meta, causal=True, indices=indices)
    with pytest.raises(AssertionError, match="when dense attention is used"):
        flash_mla.flash_mla_with_kvcache(*rest, meta, attn_sink=torch.zeros(H))
    with pytest.raises(lathe.Unsupported, match="is_fp8_kvcache is True; allowed is False"):
        flash_mla.flash_mla_with_kvcache(*rest, meta, is_fp8_kvcache=True)
    with pytest.raises(lathe.Unsupported, match="extra_k_cache is given"):
        flash_mla.flash_mla_with_kvcache(*rest, meta, indices=indices, extra_k_cache=cache)
    with pytest.raises(lathe.Unsupported, match="indexer_topk is 512"):
        flash_mla.flash_mla_sparse_fwd(q[0], cache[0], indices, 1.0, indexer_topk=512)
    with pytest.raises(TypeError, match="descale"):
        flash_mla.flash_mla_with_kvcache(*rest, meta, descale=None)
    lathe.torch.stats(reset=True)
    flash_mla.flash_mla_sparse_fwd(q[0], cache[0], indices, 1.0)
    assert lathe.torch.stats(reset=True) == {"lse of rows without a key made +inf": 1}
    flash_mla.flash_mla_with_kvcache(*rest, meta)
    assert lathe.torch.stats(reset=True) == {"lists written from a block table": 1,
                                             "lse of rows without a key made +inf": 1}
