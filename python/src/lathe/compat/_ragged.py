# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Sequences that are not packed: ragged queries over pages, used parts of slots.

Ragged queries of 16 bits read the pages where they lie. No operator takes slots that are used in
part, nor float32 over pages, so torch moves such rows by index on the device. The host waits for
the device only where it would need very much memory not to, and never in a capture or a trace.
"""
from __future__ import annotations

import torch
from torch import Tensor

from lathe._errors import InvalidArgument
from lathe.compat import _kvcache, _places
from lathe.compat._attention import attend
from lathe.torch._calls import Options, count, traced
from lathe.torch._tensors import no_gradients

_MOST_BYTES = 1 << 28  # of gathered rows, for which the host does not ask for the exact number


# ---- pages ---------------------------------------------------------------------------------------


def _room(k_cache: Tensor, v_cache: Tensor, table: Tensor) -> tuple[int, int]:
    """Returns the most keys of a sequence, and the bytes of as many keys and values of each."""
    longest = table.shape[1] * k_cache.shape[1] if k_cache.shape[0] else 0
    row = k_cache.shape[2] * (k_cache.shape[3] + v_cache.shape[3]) * k_cache.element_size()
    return longest, table.shape[0] * longest * row


def _may_wait() -> bool:
    return not (traced() or _places.capturing())


def _gather(cache: Tensor, page: Tensor, row: Tensor) -> Tensor:
    """Returns rows of a cache; zeros for those on page -1."""
    if cache.numel() == 0:
        return cache.new_zeros((page.shape[0], *cache.shape[2:]))
    return cache[page.clamp(min=0).long(), row.long()].masked_fill_((page < 0)[:, None, None], 0.0)


def gather_pages(k_cache: Tensor, v_cache: Tensor, table: Tensor, lengths: Tensor
                 ) -> tuple[Tensor, Tensor, Tensor]:
    """Returns packed keys and values and their offsets. Rows past the last offset are padding."""
    page_rows = k_cache.shape[1]
    longest, most_bytes = _room(k_cache, v_cache, table)
    lengths = lengths.clamp(0, longest)
    rows = table.shape[0] * longest
    if most_bytes > _MOST_BYTES and _may_wait():
        count("waited for the device: lengths")
        rows = int(lengths.sum())
    starts = _places.offsets(lengths)
    sequence, place = _places.find(starts, rows)
    page = _places.page_of(table, sequence, place // page_rows, k_cache.shape[0])
    row = place % page_rows
    count("gathered keys and values from pages")
    return _gather(k_cache, page, row), _gather(v_cache, page, row), starts


def attend_pages(options: Options, q: Tensor, k_cache: Tensor, v_cache: Tensor, cu_q: Tensor,
                 lengths: Tensor, table: Tensor, slopes: Tensor | None, sinks: Tensor | None,
                 num_splits: int, out: Tensor | None = None, total: Tensor | None = None
                 ) -> tuple[Tensor, Tensor]:
    """Returns (out [Tq,H,DV], lse [H,Tq]) for packed queries over pages. There is no gradient.

    total: the keys of each sequence over all ranks, where options say which of them are here.
    """
    cu_q = _places.offsets32("cu_seqlens_q", cu_q)
    batch = cu_q.shape[0] - 1
    _places.check_batch(cu_seqlens_q=batch, block_table=table.shape[0], seqused_k=len(lengths))
    _kvcache.check_lengths(lengths, 0, k_cache, table, cu_q)
    with no_gradients():
        if q.dtype in _kvcache.DECODED:
            return _kvcache.decode_packed(options, q, k_cache, v_cache, lengths, table, cu_q,
                                          slopes, sinks, num_splits, out, total)
        k, v, cu_k = gather_pages(k_cache, v_cache, table, lengths)
        return attend(options, q, k, v, slopes, sinks, cu_q, cu_k, out)


# ---- slots that are used in part -----------------------------------------------------------------


def compact(tensors: tuple[Tensor, ...], starts: Tensor, used: Tensor
            ) -> tuple[tuple[Tensor, ...], Tensor]:
    """Returns packed tensors with only the used rows of each slot, moved together, and offsets."""
    used = torch.minimum(used.clamp(min=0).to(starts.dtype), starts.diff())
    ends = _places.offsets(used, starts.dtype)
    sequence, place = _places.find(ends, tensors[0].shape[0])
    rows = starts.index_select(0, sequence) + place
    count("moved used rows together")
    return tuple(_places.chosen(each, rows) for each in tensors), ends


def _spread(out: Tensor, lse: Tensor, starts: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
    """Returns results of used rows at their places in the slots; others have out 0 and lse -inf."""
    sequence, place = _places.find(starts, out.shape[0])
    used = torch.nn.functional.pad(ends.diff(), (0, 1))  # of rows past the last offset none
    is_used = place < used.index_select(0, sequence)
    rows = ends.index_select(0, sequence) + place
    count("moved results to their slots")
    return (_places.chosen(out, rows).masked_fill(~is_used[:, None, None], 0.0),
            _places.chosen(lse.t(), rows).t().masked_fill(~is_used, float("-inf")))


def _slots(tensors: tuple[Tensor, ...], starts: Tensor | None) -> tuple[tuple[Tensor, ...], Tensor]:
    """Returns packed tensors and the offsets of their slots; rows of a batch are slots too."""
    if starts is not None:
        return tensors, starts
    batch, length = tensors[0].shape[:2]
    starts = _places.numbers(batch + 1, tensors[0].device) * length
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


def _check_out(out: Tensor, q: Tensor, v: Tensor) -> None:
    """Raises InvalidArgument unless out is what a kernel would write; a copy would broadcast."""
    allowed = [*q.shape[:-1], v.shape[-1]]
    if list(out.shape) != allowed or out.dtype is not q.dtype or out.device != q.device:
        raise InvalidArgument(
            f"out has shape {list(out.shape)}, dtype {out.dtype} and device {out.device}; allowed "
            f"are {allowed}, {q.dtype} and {q.device}, those of the queries and values")


def attend_varlen(options: Options, q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor | None,
                  cu_k: Tensor | None, used_q: Tensor | None, used_k: Tensor | None,
                  table: Tensor | None, slopes: Tensor | None = None,
                  sinks: Tensor | None = None, num_splits: int = 0, out: Tensor | None = None,
                  total: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Returns (out, lse) for what the peers call varlen: packed, batched, partly used, in pages."""
    if out is not None:
        _check_out(out, q, v)
    if table is None and used_q is None and used_k is None and (cu_q is None) == (cu_k is None):
        return attend(options, q, k, v, slopes, sinks, cu_q, cu_k, out)
    if table is None:
        found, lse = attend_slots(options, q, k, v, cu_q, cu_k, used_q, used_k, slopes, sinks)
    else:
        table = _places.table32("block_table", table)
        if used_k is None:
            used_k = cu_k.diff() if cu_k is not None else _kvcache.full_lengths(k, table)
        used_k = _places.int32("seqused_k", used_k)
        if cu_q is None and used_q is None:
            return _kvcache.decode(options, q, k, v, used_k, table, None, None, slopes, sinks,
                                   num_splits, out)
        if cu_q is not None and used_q is None:
            return attend_pages(options, q, k, v, cu_q, used_k, table, slopes, sinks, num_splits,
                                out, total)
        _places.check_batch(block_table=table.shape[0], seqused_k=len(used_k))
        with torch.no_grad():
            k, v, cu_k = gather_pages(k, v, table, used_k)
            found, lse = attend_slots(options, q, k, v, cu_q, cu_k, used_q, None, slopes, sinks)
    if out is None:
        return found, lse
    count("copied into the given out")
    return out.copy_(found), lse
