# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Sequences that are not packed: pages, used parts of slots. torch moves their rows together.

No operator takes ragged queries over pages, nor slots that are used in part. Here rows are gathered
by index on the device; the host waits for the device only where it would need very much memory not
to, and never in a capture or a trace.
"""
from __future__ import annotations

import torch
from torch import Tensor

from lathe.compat import _kvcache
from lathe.compat._attention import attend
from lathe.torch._calls import Options, count, traced

_MOST_BYTES = 1 << 28  # of gathered rows, for which the host does not ask for the exact number


def offsets(lengths: Tensor, dtype: torch.dtype = torch.int32) -> Tensor:
    """Returns [N+1] offsets of sequences with these lengths."""
    return torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).to(dtype)


def _find(starts: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """Returns, for each packed row, its sequence and its place there. Rows past the end get any."""
    at = torch.arange(rows, device=starts.device)
    sequence = torch.searchsorted(starts[1:].contiguous(), at, right=True, out_int32=False)
    sequence = sequence.clamp_(max=max(starts.shape[0] - 2, 0))
    return sequence, at - starts.long()[sequence]


# ---- pages ---------------------------------------------------------------------------------------


def _capacity(lengths: Tensor, longest: int, row_bytes: int) -> int:
    """Returns how many rows are gathered: the most there can be, or as many as there are."""
    most = lengths.shape[0] * longest
    if most * row_bytes <= _MOST_BYTES or traced() or _kvcache.capturing():
        return most
    count("waited for the device: lengths")
    return int(lengths.sum())


def gather_pages(k_cache: Tensor, v_cache: Tensor, table: Tensor, lengths: Tensor,
                 max_k: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """Returns packed keys and values and their offsets. Rows past the last offset are padding."""
    page = k_cache.shape[1]
    longest = table.shape[1] * page
    if isinstance(max_k, int):
        longest = min(longest, max_k)
    lengths = lengths.clamp(max=longest)
    row_bytes = (k_cache[0, 0].numel() + v_cache[0, 0].numel()) * k_cache.element_size()
    rows = _capacity(lengths, longest, row_bytes)
    starts = offsets(lengths)
    sequence, place = _find(starts, rows)
    place = place.clamp_(0, max(longest - 1, 0))
    pages = table[sequence, place // page].long().clamp_(0, k_cache.shape[0] - 1)
    count("gathered keys and values from pages")
    return k_cache[pages, place % page], v_cache[pages, place % page], starts


def attend_pages(options: Options, q: Tensor, k_cache: Tensor, v_cache: Tensor, cu_q: Tensor,
                 lengths: Tensor, table: Tensor, max_q: int | None, max_k: int | None,
                 slopes: Tensor | None, sinks: Tensor | None, num_splits: int,
                 out: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Returns (out [Tq,H,DV], lse [H,Tq]) for packed queries over pages. There is no gradient.

    Where all sequences have max_q queries, which is so in decoding, the cache is read in place.
    """
    batch = cu_q.shape[0] - 1
    if isinstance(max_q, int) and q.shape[0] == batch * max_q:
        into = None if out is None else out.view(batch, max_q, *out.shape[1:])
        rows = q.reshape(batch, max_q, *q.shape[1:])
        found, lse = _kvcache.decode(options, rows, k_cache, v_cache, lengths, table, None, None,
                                     slopes, sinks, num_splits, into)
        found = found.view(batch * max_q, *found.shape[2:]) if out is None else out
        return found, lse.transpose(0, 1).reshape(q.shape[1], q.shape[0])
    with torch.no_grad():
        k, v, cu_k = gather_pages(k_cache, v_cache, table, lengths, max_k)
        return attend(options, q, k, v, slopes, sinks, cu_q, cu_k.to(cu_q.dtype), out)


# ---- slots that are used in part -----------------------------------------------------------------


def compact(tensors: tuple[Tensor, ...], starts: Tensor, used: Tensor
            ) -> tuple[tuple[Tensor, ...], Tensor]:
    """Returns packed tensors with only the used rows of each slot, moved together, and offsets."""
    ends = offsets(torch.minimum(used.to(starts.dtype), starts.diff()), starts.dtype)
    sequence, place = _find(ends, tensors[0].shape[0])
    rows = (starts.long()[sequence] + place).clamp_(0, max(tensors[0].shape[0] - 1, 0))
    count("moved used rows together")
    return tuple(each.index_select(0, rows) for each in tensors), ends


def _spread(out: Tensor, lse: Tensor, starts: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
    """Returns results of used rows at their places in the slots; others have out 0 and lse -inf."""
    sequence, place = _find(starts, out.shape[0])
    is_used = (place < ends.diff().long()[sequence]) & (
        torch.arange(out.shape[0], device=out.device) < starts[-1])
    rows = (ends.long()[sequence] + place).clamp_(0, max(out.shape[0] - 1, 0))
    count("moved results to their slots")
    return (out.index_select(0, rows).masked_fill(~is_used[:, None, None], 0.0),
            lse.index_select(1, rows).masked_fill(~is_used, float("-inf")))


def _slots(tensors: tuple[Tensor, ...], starts: Tensor | None) -> tuple[tuple[Tensor, ...], Tensor]:
    """Returns packed tensors and the offsets of their slots; rows of a batch are slots too."""
    if starts is not None:
        return tensors, starts
    batch, length = tensors[0].shape[:2]
    starts = torch.arange(batch + 1, dtype=torch.int32, device=tensors[0].device) * length
    return tuple(each.flatten(0, 1) for each in tensors), starts


def attend_slots(options: Options, q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor | None,
                 cu_k: Tensor | None, used_q: Tensor | None, used_k: Tensor | None,
                 slopes: Tensor | None, sinks: Tensor | None) -> tuple[Tensor, Tensor]:
    """Returns (out, lse) for packed or batched queries and keys, of slots used in part."""
    (queries,), starts = _slots((q,), cu_q)
    (k, v), cu_k = _slots((k, v), cu_k)
    ends = starts
    if used_q is not None:
        (queries,), ends = compact((queries,), starts, used_q)
    if used_k is not None:
        (k, v), cu_k = compact((k, v), cu_k, used_k)
    out, lse = attend(options, queries, k, v, slopes, sinks, ends, cu_k.to(ends.dtype))
    if used_q is not None:
        out, lse = _spread(out, lse, starts, ends)
    if cu_q is None:
        batch, length = q.shape[:2]
        out = out.view(batch, length, *out.shape[1:])
        lse = lse.view(lse.shape[0], batch, length).transpose(0, 1)
    return out, lse


def attend_varlen(options: Options, q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor | None,
                  cu_k: Tensor | None, used_q: Tensor | None, used_k: Tensor | None,
                  max_q: int | None, max_k: int | None, table: Tensor | None,
                  slopes: Tensor | None = None, sinks: Tensor | None = None, num_splits: int = 0,
                  out: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Returns (out, lse) for what the peers call varlen: packed, batched, partly used, in pages."""
    if table is None and used_q is None and used_k is None and (cu_q is None) == (cu_k is None):
        return attend(options, q, k, v, slopes, sinks, cu_q, cu_k, out)
    if table is None:
        found, lse = attend_slots(options, q, k, v, cu_q, cu_k, used_q, used_k, slopes, sinks)
    else:
        if used_k is None:
            used_k = cu_k.diff() if cu_k is not None else _kvcache.full_lengths(k, table)
        if cu_q is None and used_q is None:
            return _kvcache.decode(options, q, k, v, used_k, table, None, None, slopes, sinks,
                                   num_splits, out)
        if cu_q is not None and used_q is None:
            return attend_pages(options, q, k, v, cu_q, used_k, table, max_q, max_k, slopes, sinks,
                                num_splits, out)
        with torch.no_grad():
            k, v, cu_k = gather_pages(k, v, table, used_k, max_k)
            found, lse = attend_slots(options, q, k, v, cu_q, cu_k, used_q, None, slopes, sinks)
    if out is None:
        return found, lse
    count("copied into the given out")
    return out.copy_(found), lse
