# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Attention over a cache of keys and values, in pages or in rows, as flash-attention has it.

Rows of a cache that has no pages are pages of their own. Tables and lengths that depend on nothing
but the cache's shape are made once and kept. There are no gradients.
"""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lathe._errors import InvalidArgument
from lathe.compat._attention import NO_CAPTURES, is_odd, narrowed, padded, with_scale
from lathe.torch import _functions
from lathe.torch._calls import Options, count, traced
from lathe.torch._tensors import dense, usable, wants_gradient

_kept: dict[Any, Tensor] = {}  # tables and lengths, by what they are and where
_MOST_KEPT = 256


def capturing() -> bool:
    """Returns true while a CUDA graph is captured."""
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def _keep(kind: str, batch: int, value: int, device: torch.device) -> Tensor:
    """Returns "rows": a table of one page a sequence, or "full": lengths that are all `value`."""
    key = (kind, batch, value, device)
    found = None if traced() else _kept.get(key)
    if found is None:
        if kind == "rows":
            found = torch.arange(batch, dtype=torch.int32, device=device)[:, None]
        else:
            found = torch.full((batch,), value, dtype=torch.int32, device=device)
        # Memory of a capture belongs to its graph.
        if not traced() and not capturing() and len(_kept) < _MOST_KEPT:
            _kept[key] = found
    return found


def table_of(k_cache: Tensor, batch: int, batch_idx: Tensor | None, table: Tensor | None) -> Tensor:
    """Returns the block table: the one given, or one in which each row of the cache is a page."""
    if table is not None:
        if batch_idx is not None:
            raise InvalidArgument("cache_batch_idx and a block table are given; allowed is one")
        return _int32("block_table", table)
    if batch_idx is not None:
        return _int32("cache_batch_idx", batch_idx)[:, None]
    return _keep("rows", batch, 0, k_cache.device)


def full_lengths(k_cache: Tensor, table: Tensor) -> Tensor:
    """Returns lengths of sequences that fill their pages."""
    return _keep("full", table.shape[0], table.shape[1] * k_cache.shape[1], k_cache.device)


def lengths_of(k_cache: Tensor, table: Tensor, cache_seqlens: int | Tensor | None) -> Tensor:
    """Returns the lengths of the sequences as a tensor."""
    if cache_seqlens is None:
        return full_lengths(k_cache, table)
    if isinstance(cache_seqlens, Tensor):
        return _int32("cache_seqlens", cache_seqlens)
    return torch.full((table.shape[0],), cache_seqlens, dtype=torch.int32, device=k_cache.device)


def _int32(name: str, tensor: Tensor) -> Tensor:
    if tensor.dtype == torch.int32:
        return dense(tensor)
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex or tensor.dtype == torch.bool:
        raise InvalidArgument(f"{name} has dtype {tensor.dtype}; allowed is int32")
    count("cast to int32")
    return tensor.int()


def check_lengths(lengths: Tensor, new: int, k_cache: Tensor, table: Tensor) -> None:
    """Raises an error if keys would lie past the block table. Lengths on a GPU are not read."""
    if not lengths.is_cpu or traced() or lengths.numel() == 0:
        return
    room = table.shape[1] * k_cache.shape[1]
    longest = int(lengths.max()) + new
    if longest > room:
        raise InvalidArgument(f"cache_seqlens and new keys reach {longest}; block_table has "
                              f"{table.shape[1]} pages of {k_cache.shape[1]}, so allowed are up "
                              f"to {room}")


# ---- appending -----------------------------------------------------------------------------------


def _write(k_cache: Tensor, v_cache: Tensor, table: Tensor, sequence: Tensor, place: Tensor,
           k: Tensor, v: Tensor) -> None:
    """Writes rows of keys and values at places of sequences, by torch and without a wait."""
    page = k_cache.shape[1]
    pages = table[sequence, (place // page).clamp(max=table.shape[1] - 1)].long()
    count("appended to the cache by torch")
    with torch.no_grad():
        k_cache.index_put_((pages, place % page), k)
        v_cache.index_put_((pages, place % page), v)


def append(k_cache: Tensor, v_cache: Tensor, table: Tensor, lengths: Tensor, k: Tensor, v: Tensor
           ) -> Tensor:
    """Appends k, v [B,S,HK,D] to the sequences and returns their new lengths."""
    batch, new = k.shape[:2]
    sequence = torch.arange(batch, device=k.device)[:, None].expand(batch, new)
    place = lengths[:, None].long() + torch.arange(new, device=k.device)
    _write(k_cache, v_cache, table, sequence, place, k, v)
    return lengths + new


def append_packed(k_cache: Tensor, v_cache: Tensor, table: Tensor, lengths: Tensor, k: Tensor,
                  v: Tensor, starts: Tensor) -> Tensor:
    """Appends packed k, v [T,HK,D] with offsets to the sequences and returns their new lengths.

    Rows past the last offset would go to no place, so they are not allowed.
    """
    at = torch.arange(k.shape[0], device=k.device)
    sequence = torch.searchsorted(starts[1:].contiguous(), at, right=True)
    place = lengths.long()[sequence] + at - starts.long()[sequence]
    _write(k_cache, v_cache, table, sequence, place, k, v)
    return lengths + starts.diff().to(lengths.dtype)


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
    width = v_cache.shape[-1]
    if odd:
        options = with_scale(options, q.shape[-1])
        q, k_cache, v_cache = padded(q), padded(k_cache), padded(v_cache)
    if num_splits > 0:
        options = (*options, ("num_splits", num_splits))
    tensors: tuple[Tensor | None, ...] = (usable(q), k_cache, v_cache, dense(table), dense(lengths),
                                          k, v, dense(slopes), dense(sinks), *NO_CAPTURES)
    if wants_gradient(tensors):
        tensors = tuple(None if each is None else each.detach() for each in tensors)
    if out is None:
        found, lse = _functions._decode(options, *tensors)
        return narrowed(found, width), lse
    if v_cache.shape[-1] != width:
        count("copied into the given out")
        found, lse = _functions._decode(options, *tensors)
        return out.copy_(found[..., :width]), lse
    lse = q.new_empty((q.shape[0], q.shape[2], q.shape[1]), dtype=torch.float32)
    _functions._decode.into(options, tensors, (out, lse))
    return out, lse
