# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Context parallelism by flash-linear-attention's names (fla.ops.cp, 0.6).

A context has the fields of the peer's class, and is one where the peer is imported. What lathe
needs beside them stands in `_lathe`: the ranks, and the offsets of the whole axis.
"""
from __future__ import annotations

import collections
import dataclasses
import json
import sys
import threading
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

import lathe.torch as lt
from lathe import _core
from lathe._errors import Unsupported
from lathe._objects import Group
from lathe.torch._calls import count

_MOST_KEPT = 64  # cuts that are kept, so that a context made anew for each step costs no plans


class _Lathe(NamedTuple):
    """What a context of lathe has beside the peer's fields."""

    ranks: lt.Ranks
    cu_seqlens: Tensor  # of the whole axis, on the device


@dataclasses.dataclass
class FLACPContext:
    """Who holds which tokens of packed sequences that are split over a group, for one rank."""

    group: Any = None
    cu_seqlens: Tensor | None = None
    cu_seqlens_cpu: Tensor | None = None
    is_last_rank: bool | None = None
    pre_num_ranks: int | None = None
    is_first_rank: bool | None = None
    post_num_ranks: int | None = None
    conv1d_kernel_size: int | None = None
    pre_num_conv_tokens: int | None = None

    def copy_for_backward(self) -> FLACPContext:
        """Returns a copy with offsets of its own."""
        copied = dataclasses.replace(
            self, cu_seqlens=None if self.cu_seqlens is None else self.cu_seqlens.clone(),
            cu_seqlens_cpu=None if self.cu_seqlens_cpu is None else self.cu_seqlens_cpu.clone())
        if hasattr(self, "_lathe"):
            setattr(copied, "_lathe", getattr(self, "_lathe"))
        return copied

    @property
    def num_seqs(self) -> int:
        """The number of sequences of which this rank holds tokens."""
        return 0 if self.cu_seqlens is None else len(self.cu_seqlens) - 1

    @property
    def is_cp_enabled(self) -> bool:
        """Whether there is a group."""
        return self.group is not None


_kept: collections.OrderedDict[tuple[Group, tuple[int, ...]], lt.Ranks] = collections.OrderedDict()
_kept_lock = threading.Lock()


def _ranks(group: Any, offsets: list[int]) -> lt.Ranks:
    """Returns the cut of these offsets. Ranks make the same calls, so they keep the same cuts."""
    of_lathe = lt.group(group)
    key = (of_lathe, tuple(offsets))
    with _kept_lock:
        if key not in _kept:
            _kept[key] = lt.Ranks(of_lathe, offsets[-1], cu_seqlens=offsets)
        _kept.move_to_end(key)
        mine = [each for each in _kept if each[0] is of_lathe]
        for each in mine[:-_MOST_KEPT]:
            del _kept[each]
        return _kept[key]


def _check_lengths(tokens: int, world: int) -> None:
    """Raises what the peer raises where parts would not be equal."""
    if tokens < world:
        raise ValueError(f"`total_tokens` ({tokens}) must be at least `world_size` ({world}); "
                         "strict=False takes any length")
    if tokens % world != 0:
        raise ValueError(f"`total_tokens` ({tokens}) must be divisible by `world_size` ({world}); "
                         "strict=False takes any length")


def _view(offsets: list[int], world: int, rank: int) -> dict[str, Any]:
    """Returns one rank's view of the sequences, from the plans behind the library's own runs."""
    asked = {"cu_seqlens": offsets, "world_size": world, "layout": "contiguous"}
    (answer,) = json.loads(_core.shard_plan("cp_context_ragged",
                                            json.dumps({"cases": [asked]})))["cases"]
    if "error" in answer and answer["error"] is not None:
        raise ValueError(answer["error"])
    found: dict[str, Any] = next(part for part in answer["parts"] if part["rank"] == rank)
    return found


def _context_class() -> Any:
    peer = sys.modules.get("fla.ops.cp.context")
    return getattr(peer, "FLACPContext", FLACPContext)


def build_cp_context(cu_seqlens: Tensor, group: Any, conv1d_kernel_size: int | None = None,
                     cu_seqlens_cpu: Tensor | None = None, use_tf32x3_affine_chain: bool = True,
                     layout: str = "contiguous", *, strict: bool = True, **kwargs: Any) -> Any:
    """Returns a context for chunk_kda and causal_conv1d over the ranks of a group of torch.

    cu_seqlens are the offsets of the whole axis; without cu_seqlens_cpu the host waits for them.
    strict=False, which the peer does not have, takes lengths that the number of ranks does not
    divide. Collective at the first call for a group.
    """
    if kwargs:
        raise TypeError(f"Unexpected CP keyword arguments: {', '.join(kwargs)}")
    if use_tf32x3_affine_chain is False:
        raise ValueError("use_tf32x3_affine_chain is False; allowed is True: maps of states are "
                         "multiplied in float32 whatever it says")
    if layout == "zigzag":
        raise Unsupported("layout is 'zigzag'; allowed is 'contiguous': a recurrence has as much "
                          "work for each token, so nothing is to be balanced")
    if layout != "contiguous":
        raise ValueError(f"`layout` must be 'contiguous' or 'zigzag', got {layout!r}.")
    if cu_seqlens_cpu is None:
        count("offsets read on the host")
        cu_seqlens_cpu = cu_seqlens.cpu()
    offsets: list[int] = cu_seqlens_cpu.tolist()
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    if strict:
        _check_lengths(offsets[-1], world)
    view = _view(offsets, world, rank)
    local = torch.tensor(view["cu_seqlens"], dtype=torch.int32)
    context = _context_class()(
        group=group, cu_seqlens=local.to(cu_seqlens.device), cu_seqlens_cpu=local,
        is_last_rank=view["is_last"], pre_num_ranks=view["pre"], is_first_rank=view["is_first"],
        post_num_ranks=view["post"], conv1d_kernel_size=conv1d_kernel_size,
        pre_num_conv_tokens=view["pre_tokens"])
    whole = cu_seqlens if cu_seqlens.is_contiguous() else cu_seqlens.contiguous()
    setattr(context, "_lathe", _Lathe(_ranks(group, offsets), whole))
    return context


def context_of(cp_context: Any, *states: Tensor | None, final: bool = False) -> _Lathe | None:
    """Returns lathe's part of a context; None if there is no context or no group in it.

    As in the peer, states neither come in nor go out over ranks.
    """
    if cp_context is None or not cp_context.is_cp_enabled:
        return None
    assert all(state is None for state in states), \
        "initial_state is given; it must be None with cp_context"
    assert not final, "output_final_state is True; it must be False with cp_context"
    found = getattr(cp_context, "_lathe", None)
    if found is None:
        raise Unsupported("cp_context was made by fla's build_cp_context, which keeps the offsets "
                          "of one rank only; make it with lathe.compat.fla.build_cp_context")
    of_lathe: _Lathe = found
    return of_lathe
