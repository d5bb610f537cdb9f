# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The functions of FlashMLA (deepseek-ai, April 2026), computed by sparse_flash_attention of lathe.

Values are the first columns of the keys, so nothing is copied: the rest of the columns go along as
rope columns. Caches hold 16-bit numbers in pages. Dense decoding reads lists that are written from
the block table. There are no gradients, as there.
"""
from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from lathe._errors import InvalidArgument, Unsupported
from lathe.compat import _places
from lathe.compat._arguments import NOT_TENSORS, refuse_others
from lathe.torch._calls import count, options_of
from lathe.torch._operator_calls import SPARSE_FLASH_ATTENTION
from lathe.torch._tensors import usable

__all__ = ["FlashMLASchedMeta", "flash_mla_sparse_fwd", "flash_mla_with_kvcache",
           "get_mla_metadata"]

# Rows of docs/python.md, as lathe.compat describes them.
DROP_INS = (
    ("FlashMLASchedMeta", "", ""),
    ("flash_mla_sparse_fwd",
     "lists cut to topk_length; scaled by a sink; lse of rows without a key made +inf",
     "indexer_topk"),
    ("flash_mla_with_kvcache",
     "cast to int32; lists written from a block table; lists cut to topk_length; copied the cache "
     "to contiguous rows; scaled by a sink; lse of rows without a key made +inf",
     "is_fp8_kvcache; extra_k_cache; extra_indices_in_kvcache; extra_topk_length"),
    ("get_mla_metadata", "", ""),
)


@dataclasses.dataclass
class FlashMLASchedMeta:
    """Carries nothing: plans are found by the tensors."""

    have_initialized: bool = False
    config: Any = None
    tile_scheduler_metadata: Tensor | None = None
    num_splits: Tensor | None = None


def get_mla_metadata(*args: Any, **kwargs: Any) -> tuple[FlashMLASchedMeta, None]:
    """Returns what flash_mla_with_kvcache asks for; arguments of older versions are accepted."""
    return FlashMLASchedMeta(), None


def _attend(q: Tensor, kv: Tensor, indices: Tensor, scale: float, values: int, sink: Tensor | None
            ) -> tuple[Tensor, Tensor, Tensor]:
    """Returns (out [T,H,DV], max [T,H], lse [H,T]) of q [T,H,D] over kv [Tk,1,D].

    indices [T,1,topk]. The sink is in out alone; lse is +inf in rows without a key.
    """
    width = q.shape[-1]
    if not 0 < values <= width:
        raise ValueError(f"the width of the values is {values}; allowed are 1 to the width of the "
                         f"keys, {width}")
    if kv.shape[1] != 1:
        raise Unsupported(f"there are {kv.shape[1]} key heads; allowed is 1, with the values in "
                          "the keys")
    if indices.shape[-1] == 0:  # the operator reads one entry and more
        indices = torch.nn.functional.pad(indices, (0, 1), value=-1)
    q, kv, indices = usable(q), usable(kv), usable(indices)
    given = {"q": q[..., :values], "k": kv[..., :values], "indices": indices}
    if width > values:
        given.update(q_rope=q[..., values:], k_rope=kv[..., values:])
    rows = {name: each.unsqueeze(0) for name, each in given.items()}
    out, most, _, lse = SPARSE_FLASH_ATTENTION(options_of(scale=float(scale)),
                                               *SPARSE_FLASH_ATTENTION.ordered(**rows))
    out, most, lse = out.squeeze(0), most.squeeze(0).squeeze(0), lse.squeeze(0)
    if sink is not None:
        count("scaled by a sink")
        kept = torch.sigmoid(lse - sink.detach().to(torch.float32)[:, None]).nan_to_num(0.0)
        out = (out * kept.t().unsqueeze(-1)).to(out.dtype)
    count("lse of rows without a key made +inf")
    return out, most, lse.masked_fill(lse == -torch.inf, torch.inf)


def _shortened(indices: Tensor, lengths: Tensor | None) -> Tensor:
    """Returns lists in which the entries past the lengths are skipped; lengths may be broadcast."""
    if lengths is None:
        return indices
    count("lists cut to topk_length")
    places = torch.arange(indices.shape[-1], device=indices.device)
    return torch.where(places < lengths.unsqueeze(-1), indices, -1)


def flash_mla_sparse_fwd(q: Tensor, kv: Tensor, indices: Tensor, sm_scale: float, d_v: int = 512,
                         attn_sink: Tensor | None = None, topk_length: Tensor | None = None,
                         indexer_topk: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Returns (out [T,H,d_v], max_logits [T,H], lse [T,H]) over the keys that the lists name.

    q [T,H,D], kv [Tk,1,D], indices [T,1,topk] int32, topk_length [T]. max_logits and lse leave the
    sink out; lse is +inf in a row without keys.
    """
    try:
        if indexer_topk:
            raise Unsupported(f"indexer_topk is {indexer_topk}; allowed is 0: call once more with "
                              "the first entries of the lists for their lse")
        lists = _shortened(indices, None if topk_length is None else topk_length.unsqueeze(-1))
        out, most, lse = _attend(q, kv, lists, sm_scale, d_v, attn_sink)
        return out, most, lse.t()
    except NOT_TENSORS:
        refuse_others(flash_mla_sparse_fwd, locals())
        raise


def _lists_of_pages(table: Tensor, lengths: Tensor, cache: Tensor, q: Tensor, causal: bool
                    ) -> Tensor:
    """Returns lists [B,Sq,M*page] of the rows of a cache that each query sees; -1: none."""
    table, lengths = _places.table32("block_table", table), _places.int32("cache_seqlens", lengths)
    batch, queries = q.shape[:2]
    _places.check_batch(q=batch, block_table=table.shape[0], cache_seqlens=lengths.shape[0])
    count("lists written from a block table")
    pages, page = cache.shape[:2]
    places = torch.arange(table.shape[1] * page, device=table.device)
    entries = table.index_select(1, places // page).long()
    rows = torch.where((entries >= 0) & (entries < pages), entries * page + places % page, -1)
    seen = lengths[:, None].long().expand(-1, queries)
    if causal:
        seen = seen - torch.arange(queries - 1, -1, -1, device=lengths.device)
    return torch.where(places < seen.unsqueeze(-1), rows.unsqueeze(1), -1).to(torch.int32)


def _flat(cache: Tensor) -> Tensor:
    """Returns a cache [blocks,page,1,D] as rows [T,1,D]; a copy where blocks do not follow on."""
    blocks, page = cache.shape[:2]
    if blocks > 1 and page > 0 and cache.stride(0) != page * cache.stride(1):
        count("copied the cache to contiguous rows")
    return cache.reshape(blocks * page, *cache.shape[2:])


def _lists_of_indices(q: Tensor, indices: Tensor, topk_length: Tensor | None) -> Tensor:
    """Returns lists [B,Sq,topk] of the rows of a cache that each query reads; -1: none."""
    if indices.shape[:2] != q.shape[:2]:
        raise InvalidArgument(f"indices has shape {list(indices.shape)}; allowed is "
                              f"[{q.shape[0]}, {q.shape[1]}, topk], a list for each query")
    return _shortened(indices, None if topk_length is None else topk_length.unsqueeze(-1))


def _refuse_given(**given: Any) -> None:
    if given.pop("is_fp8_kvcache"):
        raise Unsupported("is_fp8_kvcache is True; allowed is False: caches hold 16-bit numbers "
                          "here, for dense and for sparse attention")
    for name, value in given.items():
        if value is not None:
            raise Unsupported(f"{name} is given; allowed is None: put all keys into one cache and "
                              "their places into indices")


def flash_mla_with_kvcache(
        q: Tensor, k_cache: Tensor, block_table: Tensor | None, cache_seqlens: Tensor | None,
        head_dim_v: int, tile_scheduler_metadata: Any, num_splits: None = None,
        softmax_scale: float | None = None, causal: bool = False, is_fp8_kvcache: bool = False,
        indices: Tensor | None = None, attn_sink: Tensor | None = None,
        extra_k_cache: Tensor | None = None, extra_indices_in_kvcache: Tensor | None = None,
        topk_length: Tensor | None = None, extra_topk_length: Tensor | None = None
        ) -> tuple[Tensor, Tensor]:
    """Returns (out [B,Sq,H,head_dim_v], lse [B,H,Sq]) over a cache [blocks,page,1,D] in pages.

    With indices [B,Sq,topk] they are the rows of the cache that each query reads, counted over all
    blocks; else a row reads what block_table and cache_seqlens say. lse leaves the sink out.
    """
    assert isinstance(tile_scheduler_metadata, FlashMLASchedMeta), (
        "tile_scheduler_metadata must be of type FlashMLASchedMeta")
    assert num_splits is None, "num_splits must be None"
    _refuse_given(is_fp8_kvcache=is_fp8_kvcache, extra_k_cache=extra_k_cache,
                  extra_indices_in_kvcache=extra_indices_in_kvcache,
                  extra_topk_length=extra_topk_length)
    try:
        batch, queries, heads, width = q.shape
        if indices is None:
            assert attn_sink is None and topk_length is None, (
                "attn_sink and topk_length must be None when dense attention is used")
            assert block_table is not None and cache_seqlens is not None, (
                "block_table and cache_seqlens must be provided when dense attention is used")
            lists = _lists_of_pages(block_table, cache_seqlens, k_cache, q, bool(causal))
        else:
            assert not causal, "causal must be False when sparse attention is enabled"
            lists = _lists_of_indices(q, indices, topk_length)
        scale = width**-0.5 if softmax_scale is None else softmax_scale
        lists = lists.reshape(batch * queries, 1, lists.shape[-1])
        out, _, lse = _attend(q.reshape(batch * queries, heads, width), _flat(k_cache), lists,
                              scale, head_dim_v, attn_sink)
        return (out.view(batch, queries, heads, head_dim_v),
                lse.view(heads, batch, queries).permute(1, 0, 2))
    except NOT_TENSORS:
        refuse_others(flash_mla_with_kvcache, locals())
        raise
