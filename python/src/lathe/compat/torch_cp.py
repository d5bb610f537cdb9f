# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The context parallelism of torch 2.15 (torch.distributed.tensor.experimental) over lathe's ranks.

Within context_parallel, F.scaled_dot_product_attention computes over the ranks of the mesh: keys
are gathered ("allgather", the default) or travel a ring ("alltoall"). Any lengths are taken; a mask
and dropout are refused.

In place of a mesh all functions take lathe.torch.Ranks: then buffers are cut as those say, whatever
their balance or table of ranges, so that attention, KDA and convolutions of a model share one
layout.
"""
from __future__ import annotations

import contextlib
import math
import threading
from typing import Any, Iterator, Sequence

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

import lathe.torch as lt
from lathe._errors import InvalidArgument, Unsupported
from lathe.compat._torch_cp_balancers import (_create_default_load_balancer, _HeadTailLoadBalancer,
                                              _LoadBalancer, _PerDocumentHeadTailLoadBalancer,
                                              _PTRRLoadBalancer)
from lathe.torch._calls import count
from lathe.torch._tensors import usable

_ROTATIONS = {"allgather": ("allgather",), "alltoall": ()}
_settings = {"rotate": "allgather"}
# Ranks may be threads: what a thread is in is its own.
_here = threading.local()


def set_rotate_method(rotate_method: str) -> None:
    """Chooses how keys meet queries: "allgather", or "alltoall", which is a ring."""
    if rotate_method not in _ROTATIONS:
        raise NotImplementedError(f"Unknown rotate method {rotate_method}")
    _settings["rotate"] = rotate_method


# ---- buffers -------------------------------------------------------------------------------------


def _reordered(buffer: Tensor, dim: int, indices: Tensor | None) -> Tensor:
    """Returns a buffer with its tokens in the order of indices [1, S] or [B, S]; batch is dim 0."""
    if indices is None:
        return buffer
    if indices.shape[-1] != buffer.shape[dim]:
        raise InvalidArgument(f"the load balancer orders {indices.shape[-1]} tokens, but dimension "
                              f"{dim} of the buffer, of shape {tuple(buffer.shape)}, has "
                              f"{buffer.shape[dim]}; make a balancer for as many")
    if dim == 0 or indices.shape[0] == 1:
        return buffer.index_select(dim, indices[0])
    if indices.shape[0] != buffer.shape[0]:
        raise ValueError(f"load balance indices have shape {tuple(indices.shape)}, but the buffer "
                         f"has shape {tuple(buffer.shape)}")
    return torch.stack([row.index_select(dim - 1, order) for row, order in zip(buffer, indices)])


def _bounds(length: int, world: int, rank: int) -> tuple[int, int]:
    return length * rank // world, length * (rank + 1) // world


def _check_no_balancer(load_balancer: _LoadBalancer | None) -> None:
    if load_balancer is not None:
        raise InvalidArgument("load_balancer is given beside Ranks, which say who holds what; "
                              "allowed is None")


def _context_parallel_shard(mesh: Any, buffers: Sequence[Any], seq_dims: Sequence[int],
                            load_balancer: _LoadBalancer | None = None) -> list[Tensor]:
    """Returns this rank's part of each buffer, cut from the tokens in the balancer's order."""
    if len(seq_dims) != len(buffers):
        raise ValueError("`seq_dims` must have the same number of elements as `buffers`.")
    if isinstance(mesh, lt.Ranks):
        _check_no_balancer(load_balancer)
        for buffer, dim in zip(buffers, seq_dims):
            if buffer.shape[dim] != mesh.length:
                raise InvalidArgument(f"dimension {dim} of a buffer has {buffer.shape[dim]} tokens; "
                                      f"the Ranks were made for {mesh.length}")
        return [mesh.take(buffer, dim) for buffer, dim in zip(buffers, seq_dims)]
    group = mesh.get_group()
    indices = load_balancer._generate_indices() if load_balancer else None
    parts = []
    for buffer, dim in zip(buffers, seq_dims):
        if not isinstance(buffer, Tensor):
            raise Unsupported(f"a buffer is a {type(buffer).__name__}; allowed are tensors: keep "
                              "the mask's function, which lathe.flex reads by positions")
        begin, end = _bounds(buffer.shape[dim], dist.get_world_size(group), dist.get_rank(group))
        parts.append(_reordered(buffer, dim, indices).narrow(dim, begin, end - begin).contiguous())
    return parts


def _gathered(buffer: Tensor, dim: int, group: Any) -> Tensor:
    """Returns the ranks' parts one behind the other; they may have different lengths."""
    world = dist.get_world_size(group)
    lengths: list[Any] = [None] * world
    dist.all_gather_object(lengths, buffer.shape[dim], group=group)
    rows = buffer.movedim(dim, 0).contiguous()
    padded = rows.new_zeros((max(lengths), *rows.shape[1:]))
    padded[:rows.shape[0]] = rows
    parts = [torch.empty_like(padded) for _ in range(world)]
    dist.all_gather(parts, padded, group=group)
    return torch.cat([part[:length] for part, length in zip(parts, lengths)]).movedim(0, dim)


def _joined(ranks: lt.Ranks, buffer: Tensor, dim: int) -> Tensor:
    """Returns the whole of a buffer that was cut by Ranks."""
    group = ranks.process_group
    if group is None:
        raise Unsupported("the Ranks were made of lathe's group, over which torch gathers nothing; "
                          "allowed are Ranks of a process group of torch")
    held: list[Any] = [None] * ranks.world
    dist.all_gather_object(held, ranks.shard.intervals(), group=group)
    order = torch.cat([torch.arange(begin, end) for each in held for begin, end in each] or
                      [torch.arange(0)]).to(buffer.device)
    rows = _gathered(buffer, dim, group)
    return torch.empty_like(rows).index_copy_(dim, order, rows).contiguous()


@torch.no_grad()
def context_parallel_unshard(mesh: Any, buffers: list[Tensor], seq_dims: list[int],
                             load_balancer: _LoadBalancer | None = None) -> list[Tensor]:
    """Returns the whole of buffers that were sharded, in the order of before."""
    if isinstance(mesh, lt.Ranks):
        _check_no_balancer(load_balancer)
        return [_joined(mesh, buffer, dim) for buffer, dim in zip(buffers, seq_dims)]
    group = mesh.get_group()
    whole = []
    for buffer, dim in zip(buffers, seq_dims):
        joined = _gathered(buffer, dim, group)
        balancer = load_balancer or _create_default_load_balancer(
            joined.shape[dim], dist.get_world_size(group), buffer.device)
        restore = balancer._generate_indices(restore=True) if balancer else None
        whole.append(_reordered(joined, dim, restore).contiguous())
    return whole


# ---- attention -----------------------------------------------------------------------------------


class _Place:
    """What a thread is within: the mesh, or Ranks, and the length of the whole sequence."""

    def __init__(self, mesh: Any, length: int, balanced: bool) -> None:
        self.mesh, self.length, self.balanced = mesh, length, balanced
        self._ranks: dict[tuple[int, bool, str], lt.Ranks] = {}

    def ranks(self, length: int, balanced: bool) -> lt.Ranks:
        if isinstance(self.mesh, lt.Ranks):
            return self.mesh
        key = (length, balanced, _settings["rotate"])
        if key not in self._ranks:
            self._ranks[key] = lt.Ranks(self.mesh.get_group(), length,
                                        balance="head_tail" if balanced else "none",
                                        flags=_ROTATIONS[_settings["rotate"]])
        return self._ranks[key]


def _attention(place: _Place, query: Tensor, key: Tensor, value: Tensor, is_causal: bool,
               scale: float | None) -> Tensor:
    """Computes [B,H,S,D] of this rank's rows over the keys of all ranks."""
    held = place.ranks(place.length, place.balanced)
    rows = sum(end - begin for begin, end in held.shard.intervals())
    if query.shape[2] != rows or key.shape[2] != rows:
        raise InvalidArgument(f"query has {query.shape[2]} and key {key.shape[2]} tokens; this "
                              f"rank of {held.world} holds {rows} of the {place.length} of the buffers")
    q, k, v = (usable(each.transpose(1, 2)) for each in (query, key, value))
    out, _ = lt.flash_attention(q, k, v, causal=is_causal, softmax_scale=scale, over=held)
    return out.transpose(1, 2)


def _patched(original: Any) -> Any:
    def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor,
                                     attn_mask: Tensor | None = None, dropout_p: float = 0.0,
                                     is_causal: bool = False, scale: float | None = None,
                                     enable_gqa: bool = False) -> Tensor:
        place = getattr(_here, "place", None)
        if place is None:  # another thread, which is in no context
            return original(query, key, value, attn_mask, dropout_p, is_causal,  # type: ignore
                            scale=scale, enable_gqa=enable_gqa)
        if attn_mask is not None:
            raise Unsupported("attn_mask is given; over ranks allowed are None and is_causal")
        if dropout_p != 0:
            raise Unsupported(f"dropout_p is {dropout_p}; allowed is 0")
        if query.shape[1] != key.shape[1] and not enable_gqa:
            raise InvalidArgument(f"query has {query.shape[1]} heads and key {key.shape[1]}; "
                                  "different numbers need enable_gqa=True")
        if scale is not None and not (scale > 0 and math.isfinite(scale)):
            raise InvalidArgument(f"scale is {scale}; allowed are positive numbers")
        return _attention(place, query, key, value, is_causal, scale)

    return scaled_dot_product_attention


_patches = 0
_original: Any = None
_patch_lock = threading.Lock()


@contextlib.contextmanager
def _attention_over_ranks(place: _Place) -> Iterator[None]:
    """Patches F.scaled_dot_product_attention while any thread is within."""
    global _patches, _original
    outer = getattr(_here, "place", None)
    with _patch_lock:
        if _patches == 0:
            _original = F.scaled_dot_product_attention
            F.scaled_dot_product_attention = _patched(_original)
        _patches += 1
    _here.place = place
    try:
        yield
    finally:
        _here.place = outer
        with _patch_lock:
            _patches -= 1
            if _patches == 0:
                F.scaled_dot_product_attention = _original


@contextlib.contextmanager
@torch.no_grad()
def _resharded(buffers: Sequence[Tensor], parts: Sequence[Tensor], kept: Sequence[Tensor | None]
               ) -> Iterator[None]:
    for buffer, part in zip(buffers, parts):
        buffer.resize_(part.shape)
        buffer.copy_(part)
    try:
        with torch.enable_grad():
            yield
    finally:
        for buffer, whole in zip(buffers, kept):
            if whole is not None:
                buffer.resize_(whole.shape)
                buffer.copy_(whole)


@contextlib.contextmanager
def context_parallel(mesh: Any, *, buffers: list[Tensor] | None = None,
                     buffer_seq_dims: list[int] | None = None,
                     no_restore_buffers: set[Tensor] | None = None) -> Iterator[None]:
    """Shards buffers in place, and lets scaled_dot_product_attention compute over the ranks.

    The length of the sequence is that of the first buffer. Where 2 * world_size divides it, rank r
    holds the chunks r and 2W-1-r, else part r. Ranks in place of the mesh say themselves who holds
    what. Buffers are restored at the end, except those of no_restore_buffers.
    """
    given, dims = buffers or [], buffer_seq_dims or []
    if len(given) != len(dims):
        raise ValueError("`seq_dims` must have the same number of elements as `buffers`.")
    for each in no_restore_buffers or ():
        if not any(each is buffer for buffer in given):
            raise ValueError("`no_restore_buffers` must be a subset of `buffers`.")
    if not given:
        raise InvalidArgument("buffers is empty; the first gives the length of the sequence")
    left = [any(each is buffer for each in no_restore_buffers or ()) for buffer in given]
    kept = [None if stays else buffer.detach().clone() for buffer, stays in zip(given, left)]
    length = given[0].shape[dims[0]]
    balancer = (None if isinstance(mesh, lt.Ranks) else
                _create_default_load_balancer(length, mesh.size(), given[0].device))
    parts = [part.detach().clone() for part in _context_parallel_shard(mesh, given, dims, balancer)]
    count("buffers sharded")
    place = _Place(mesh, length, balancer is not None)
    with _resharded(given, parts, kept), _attention_over_ranks(place):
        yield


__all__ = ["context_parallel", "context_parallel_unshard", "set_rotate_method"]

# Rows of docs/python.md, as lathe.compat describes them.
DROP_INS = (
    ("context_parallel", "buffers sharded", ""),
    ("context_parallel_unshard", "", ""),
    ("set_rotate_method", "", ""),
)
