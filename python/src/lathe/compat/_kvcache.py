# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Attention over a cache of keys and values, in pages or in rows, as flash-attention has it.

Rows of a cache that has no pages are pages of their own. There are no gradients.
"""
from __future__ import annotations

import torch
from torch import Tensor

from lathe._errors import InvalidArgument
from lathe.compat import _places
from lathe.compat._places import capturing as capturing
from lathe.compat._attention import (NO_CAPTURES, is_odd, lse_shape, narrowed, padded,
                                     with_scale)
from lathe.torch._calls import Options, count, traced
from lathe.torch._operator_calls import FLASH_ATTENTION_DECODE, NOT_SERVED
from lathe.torch._tensors import usable, wants_gradient


DECODED = (torch.float16, torch.bfloat16)


def table_of(k_cache: Tensor, batch: int, batch_idx: Tensor | None, table: Tensor | None,
             name: str = "block_table") -> Tensor:
    """Returns the block table: the one given, or one in which each row of the cache is a page."""
    if table is not None:
        if batch_idx is not None:
            raise InvalidArgument("cache_batch_idx and a block table are given; allowed is one")
        return _places.table32(name, table)
    if batch_idx is not None:
        return _places.int32("cache_batch_idx", batch_idx)[:, None]
    if batch > k_cache.shape[0]:
        raise InvalidArgument(f"q has {batch} sequences and k_cache {k_cache.shape[0]} rows; "
                              "allowed are at most as many sequences as rows: give a larger cache, "
                              "or the rows in cache_batch_idx")
    return _places.numbers(batch, k_cache.device)[:, None]


def full_lengths(k_cache: Tensor, table: Tensor) -> Tensor:
    """Returns lengths of sequences that fill their pages."""
    return _places.filled(table.shape[0], table.shape[1] * k_cache.shape[1], k_cache.device)


def lengths_of(k_cache: Tensor, table: Tensor, cache_seqlens: int | Tensor | None) -> Tensor:
    """Returns the lengths of the sequences as a tensor."""
    if cache_seqlens is None:
        return full_lengths(k_cache, table)
    if isinstance(cache_seqlens, Tensor):
        return _places.int32("cache_seqlens", cache_seqlens)
    if isinstance(cache_seqlens, float):
        raise InvalidArgument(f"cache_seqlens is {cache_seqlens}; allowed are an integer and a "
                              "tensor of int32")
    return torch.full((table.shape[0],), cache_seqlens, dtype=torch.int32, device=k_cache.device)


def check_lengths(lengths: Tensor, new: int | Tensor, k_cache: Tensor, table: Tensor,
                  starts: Tensor | None = None) -> None:
    """Raises an error if keys would lie past the block table. Lengths on a GPU are not read.

    A sequence is padding, whatever its length is, if its first page is none or it has no rows;
    starts: the offsets of the rows.
    """
    if not lengths.is_cpu or traced() or table.numel() == 0 or len(lengths) != len(table):
        return
    room = table.shape[1] * k_cache.shape[1]
    there = (table[:, 0] >= 0) & (table[:, 0] < k_cache.shape[0])
    if starts is not None:
        there &= starts.diff() > 0
    longest = int(torch.where(there, lengths.long() + new, 0).max())
    if longest > room:
        raise InvalidArgument(f"cache_seqlens and new keys reach {longest}; block_table has "
                              f"{table.shape[1]} pages of {k_cache.shape[1]}, so allowed are up "
                              f"to {room}")


# ---- appending -----------------------------------------------------------------------------------


def _write_by_torch(cache: Tensor, page: Tensor, row: Tensor, new: Tensor) -> None:
    """Writes rows of a cache; those on page -1 go nowhere.

    Such a row repeats the first one that has a place, so that nothing else is written twice. If
    none has a place, the cache's first row gets what it holds.
    """
    if cache.numel() == 0:
        return
    there = page >= 0
    first = there.int().argmax()
    source = torch.where(there, _places.numbers(len(page), page.device), first)
    page, row = page.index_select(0, source), row.index_select(0, source)
    page, row = page.clamp(min=0).long(), row.where(page >= 0, 0).long()
    count("appended to the cache by torch")
    cache.index_put_((page, row), torch.where(there.any(), new.index_select(0, source),
                                              cache[page, row]))


def _write(k_cache: Tensor, v_cache: Tensor, table: Tensor, lengths: Tensor, sequence: Tensor,
           step: Tensor, k: Tensor, v: Tensor) -> None:
    """Writes rows k, v [T,HK,D], each `step` places behind the keys of its sequence.

    A row of no sequence, of one with a negative length, or without a page is not written. The
    kernel that appends gets each row as a sequence of its own; it takes neither odd widths nor
    float32.
    """
    if k.shape[0] == 0:
        return
    page_rows = k_cache.shape[1]
    before = _places.chosen(lengths, sequence)
    place = before.long() + step
    page = _places.page_of(table, sequence, place // page_rows, k_cache.shape[0])
    page, row = page.masked_fill(before < 0, -1), place % page_rows
    with torch.no_grad():
        if is_odd(k_cache, v_cache) or k_cache.dtype not in DECODED:
            _write_by_torch(k_cache, page, row, k)
            _write_by_torch(v_cache, page, row, v)
            return
        count("appended by a call of its own")
        k, v = usable(k.unsqueeze(1)), usable(v.unsqueeze(1))
        FLASH_ATTENTION_DECODE((), *FLASH_ATTENTION_DECODE.ordered(
            q=k[:, :, :0], k_cache=k_cache, v_cache=v_cache, block_table=page.int()[:, None],
            cache_seqlens=row.int(), k_new=k, v_new=v))


def _check_new(k_cache: Tensor, v_cache: Tensor, k: Tensor, v: Tensor) -> None:
    for name, new, cache in (("k", k, k_cache), ("v", v, v_cache)):
        if new.shape[-2:] != cache.shape[-2:] or new.dtype != cache.dtype or (
                new.shape[:-2] != k.shape[:-2]):
            raise InvalidArgument(
                f"{name} has shape {list(new.shape)} and dtype {new.dtype}; allowed are "
                f"{list((*k.shape[:-2], *cache.shape[-2:]))} and {cache.dtype}, those of the cache")


def _grown(lengths: Tensor, new: int | Tensor) -> Tensor:
    """Returns the lengths with new keys; a negative one stays, since its keys went nowhere."""
    return torch.where(lengths < 0, lengths, lengths + new)


def append(k_cache: Tensor, v_cache: Tensor, table: Tensor, lengths: Tensor, k: Tensor, v: Tensor
           ) -> Tensor:
    """Appends k, v [B,S,HK,D] to the sequences and returns their new lengths."""
    _check_new(k_cache, v_cache, k, v)
    batch, new = k.shape[:2]
    _places.check_batch(block_table=table.shape[0], cache_seqlens=lengths.shape[0], k=batch)
    check_lengths(lengths, new, k_cache, table)
    sequence = _places.numbers(batch, k.device).repeat_interleave(new)
    step = _places.numbers(new, k.device).repeat(batch)
    _write(k_cache, v_cache, table, lengths, sequence, step, k.flatten(0, 1), v.flatten(0, 1))
    return _grown(lengths, new)


def append_packed(k_cache: Tensor, v_cache: Tensor, table: Tensor, lengths: Tensor, k: Tensor,
                  v: Tensor, starts: Tensor) -> Tensor:
    """Appends packed k, v [T,HK,D] with offsets to the sequences and returns their new lengths."""
    _check_new(k_cache, v_cache, k, v)
    starts = _places.offsets32("cu_seqlens_k_new", starts)
    _places.check_batch(block_table=table.shape[0], cache_seqlens=lengths.shape[0],
                        cu_seqlens_k_new=starts.shape[0] - 1)
    check_lengths(lengths, starts.diff(), k_cache, table, starts)
    sequence, step = _places.find(starts, k.shape[0])
    _write(k_cache, v_cache, table, lengths, sequence, step, k, v)
    return _grown(lengths, starts.diff())


# ---- attention -----------------------------------------------------------------------------------


def decode(options: Options, q: Tensor, k_cache: Tensor, v_cache: Tensor, lengths: Tensor,
           table: Tensor, k: Tensor | None, v: Tensor | None, slopes: Tensor | None = None,
           sinks: Tensor | None = None, num_splits: int = 0, out: Tensor | None = None
           ) -> tuple[Tensor, Tensor]:
    """Returns (out [B,Sq,H,DV], lse [B,H,Sq]) of queries over pages, to which k, v are appended.

    An `out` that is given is written.
    """
    if (k is None) != (v is None):
        given, absent = ("k", "v") if v is None else ("v", "k")
        raise InvalidArgument(f"{given} is given, but {absent} is not; give both, or neither")
    check_lengths(lengths, 0 if k is None else k.shape[1], k_cache, table)
    odd = is_odd(k_cache, v_cache)
    if k is not None and v is not None:
        if k.shape[1] == q.shape[1] and not odd:
            k, v = usable(k), usable(v)
        else:
            lengths = append(k_cache, v_cache, table, lengths, k, v)
            k = v = None
    tensors = (k, v, slopes, sinks, None, None)
    return _attended(options, q, k_cache, v_cache, lengths, table, tensors, num_splits, out)


def decode_packed(options: Options, q: Tensor, k_cache: Tensor, v_cache: Tensor, lengths: Tensor,
                  table: Tensor, cu_q: Tensor, slopes: Tensor | None, sinks: Tensor | None,
                  num_splits: int, out: Tensor | None, total: Tensor | None
                  ) -> tuple[Tensor, Tensor]:
    """Returns (out [Tq,H,DV], lse [H,Tq]) of packed queries over pages, any number a sequence.

    total, with options key_stride and key_offset: the keys of each sequence over all ranks.
    """
    tensors = (None, None, slopes, sinks, cu_q, total)
    return _attended(options, q, k_cache, v_cache, lengths, table, tensors, num_splits, out)


def _attended(options: Options, q: Tensor, k_cache: Tensor, v_cache: Tensor, lengths: Tensor,
              table: Tensor, others: tuple[Tensor | None, ...], num_splits: int,
              out: Tensor | None) -> tuple[Tensor, Tensor]:
    """Returns (out, lse). others: k and v to append, slopes, sinks, offsets, keys of all ranks."""
    k, v, slopes, sinks, cu_q, total = others
    width = v_cache.shape[-1]
    if is_odd(k_cache, v_cache):
        options = with_scale(options, q.shape[-1])
        q, k_cache, v_cache = padded(q), padded(k_cache), padded(v_cache)
    if num_splits > 0:
        options = (*options, ("num_splits", num_splits))
    served = (None, None, cu_q, None, total, *NOT_SERVED[5:])
    tensors: tuple[Tensor | None, ...] = (q, k_cache, v_cache, table, lengths, k, v, slopes, sinks,
                                          *served, *NO_CAPTURES)
    if wants_gradient(tensors):
        tensors = tuple(None if each is None else each.detach() for each in tensors)
    if out is None:
        found, lse = FLASH_ATTENTION_DECODE(options, *tensors)
        return narrowed(found, width), lse
    if v_cache.shape[-1] != width:
        count("copied into the given out")
        found, lse = FLASH_ATTENTION_DECODE(options, *tensors)
        return out.copy_(found[..., :width]), lse
    lse = q.new_empty(lse_shape(q, cu_q), dtype=torch.float32)
    FLASH_ATTENTION_DECODE.written(options, tensors, (out, lse))
    return out, lse
