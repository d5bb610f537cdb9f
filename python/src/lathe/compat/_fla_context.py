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
    cu_seqlens: Tensor | None  # of the whole axis, on the device; None: it is one sequence


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
    # With layout "zigzag" a rank holds a front and a back part, and these are of both.
    layout: str = "contiguous"
    part_len: int | None = None
    front_num_seqs: int | None = None
    pre_num_ranks_by_part: tuple[int, int] | None = None
    post_num_ranks_by_part: tuple[int, int] | None = None
    is_first_by_part: tuple[bool, bool] | None = None
    is_last_by_part: tuple[bool, bool] | None = None
    pre_num_conv_tokens_by_part: tuple[int, int] | None = None

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


_kept: collections.OrderedDict[tuple[Group, tuple[int, ...], str], lt.Ranks] = (
    collections.OrderedDict())
_kept_lock = threading.Lock()


def _ranks(group: Any, offsets: list[int], balance: str) -> lt.Ranks:
    """Returns the cut of these offsets. Ranks make the same calls, so they keep the same cuts."""
    of_lathe = lt.group(group)
    key = (of_lathe, tuple(offsets), balance)
    with _kept_lock:
        if key not in _kept:
            _kept[key] = lt.Ranks(of_lathe, offsets[-1], cu_seqlens=offsets,
                                  balance=balance)
        _kept.move_to_end(key)
        mine = [each for each in _kept if each[0] is of_lathe]
        for each in mine[:-_MOST_KEPT]:
            del _kept[each]
        return _kept[key]


def _check_lengths(tokens: int, world: int, zigzag: bool) -> None:
    """Raises what the peer raises where parts would not be equal."""
    if tokens < world:
        raise ValueError(f"`total_tokens` ({tokens}) must be at least `world_size` ({world}); "
                         "strict=False takes any length")
    parts, name = (2 * world, "2 * `world_size`") if zigzag else (world, "`world_size`")
    if tokens % parts != 0:
        raise ValueError(f"`total_tokens` ({tokens}) must be divisible by {name} ({parts}); "
                         "strict=False takes any length")


def _views(offsets: list[int], world: int, rank: int, layout: str) -> list[dict[str, Any]]:
    """Returns the sequences as one rank's parts see them: the plans behind the library's runs."""
    asked = {"cu_seqlens": offsets, "world_size": world, "layout": layout}
    (answer,) = json.loads(_core.shard_plan("cp_context_ragged",
                                            json.dumps({"cases": [asked]})))["cases"]
    if "error" in answer and answer["error"] is not None:
        raise ValueError(answer["error"])
    return [part for part in answer["parts"] if part["rank"] == rank]


def _fields(views: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the peer's fields of a rank with one part, or with a front and a back one."""
    front, back = views[0], views[-1]
    if front is back:
        return {"is_last_rank": front["is_last"], "pre_num_ranks": front["pre"],
                "is_first_rank": front["is_first"], "post_num_ranks": front["post"],
                "pre_num_conv_tokens": front["pre_tokens"]}
    return {"layout": "zigzag", "part_len": front["cu_seqlens"][-1],
            "front_num_seqs": len(front["cu_seqlens"]) - 1,
            "pre_num_ranks_by_part": (front["pre"], back["pre"]),
            "post_num_ranks_by_part": (front["post"], back["post"]),
            "is_first_by_part": (front["is_first"], back["is_first"]),
            "is_last_by_part": (front["is_last"], back["is_last"]),
            "pre_num_conv_tokens_by_part": (front["pre_tokens"], back["pre_tokens"])}


def _local_offsets(views: list[dict[str, Any]]) -> Tensor:
    """Returns the offsets in a rank's tokens, part after part."""
    out = [0]
    for view in views:
        begin = out[-1]
        out += [begin + offset for offset in view["cu_seqlens"][1:]]
    return torch.tensor(out, dtype=torch.int32)


def _context_class() -> Any:
    peer = sys.modules.get("fla.ops.cp.context")
    return getattr(peer, "FLACPContext", FLACPContext)


def build_cp_context(cu_seqlens: Tensor, group: Any, conv1d_kernel_size: int | None = None,
                     cu_seqlens_cpu: Tensor | None = None, use_tf32x3_affine_chain: bool = True,
                     layout: str = "contiguous", *, strict: bool = True, **kwargs: Any) -> Any:
    """Returns a context for chunk_kda and causal_conv1d over the ranks of a group of torch.

    cu_seqlens are the offsets of the whole axis; without cu_seqlens_cpu the host waits for them.
    strict=False, which the peer does not have, takes lengths that the number of ranks does not
    divide. layout "zigzag": rank r of W holds parts r and 2 W - 1 - r of 2 W, as balanced
    attention does. Collective at the first call for a group.
    """
    if kwargs:
        raise TypeError(f"Unexpected CP keyword arguments: {', '.join(kwargs)}")
    if use_tf32x3_affine_chain is False:
        raise ValueError("use_tf32x3_affine_chain is False; allowed is True: maps of states are "
                         "multiplied in float32 whatever it says")
    if layout not in ("contiguous", "zigzag"):
        raise ValueError(f"`layout` must be 'contiguous' or 'zigzag', got {layout!r}.")
    if cu_seqlens_cpu is None:
        count("offsets read on the host")
        cu_seqlens_cpu = cu_seqlens.cpu()
    offsets: list[int] = cu_seqlens_cpu.tolist()
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    zigzag = layout == "zigzag"
    if strict:
        _check_lengths(offsets[-1], world, zigzag)
    balance = "head_tail" if zigzag else "none"
    views = _views(offsets, world, rank, "head_tail" if zigzag else "contiguous")
    local = _local_offsets(views)
    context = _context_class()(
        group=group, cu_seqlens=local.to(cu_seqlens.device), cu_seqlens_cpu=local,
        conv1d_kernel_size=conv1d_kernel_size, **_fields(views))
    whole = cu_seqlens if cu_seqlens.is_contiguous() else cu_seqlens.contiguous()
    setattr(context, "_lathe", _Lathe(_ranks(group, offsets, balance), whole))
    return context


def context_of(cp_context: Any, cu_seqlens: Tensor | None, *states: Tensor | None,
               final: bool = False) -> _Lathe | None:
    """Returns lathe's part of a context; None if there is no context or no group in it.

    A context may be lathe.torch.Ranks, in any layout: then cu_seqlens are those of the whole axis,
    and states come in and go out. As in the peer, they do not with the peer's contexts.
    """
    if isinstance(cp_context, lt.Ranks):
        return _Lathe(cp_context, cu_seqlens)
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
