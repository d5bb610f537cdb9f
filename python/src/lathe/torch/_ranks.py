# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks that share a sequence: process groups of torch.distributed as groups of lathe, and calls
that run over them."""
from __future__ import annotations

import functools
import os
import threading
import weakref
from typing import Any, Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Parameter

from lathe import _core
from lathe._errors import InvalidArgument, Unsupported
from lathe._objects import Context, Group, Plan, Problem, Shard, context, flag_bits
from lathe.torch import _device, _shapes
from lathe.torch._calls import Call, Options, Tensors, count, is_compiling
from lathe.torch._transforms import constant_in_traces

_groups: weakref.WeakKeyDictionary[Any, dict[int, Group]] = weakref.WeakKeyDictionary()
_groups_lock = threading.Lock()


def _context() -> Context:
    if not _device.simulated() and torch.cuda.is_available():
        return context("cuda", torch.cuda.current_device())
    if not _device.simulated():
        _device.context_of(("a tensor",), (torch.empty(0),))  # raises what to do
    return context("sim")


def _check_processes(group: Any) -> None:
    """The simulator is in each process's memory, so its ranks are threads of one process."""
    pids: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(pids, os.getpid(), group=group)
    if any(pid != os.getpid() for pid in pids):
        raise Unsupported("the ranks are several processes; on the simulator ranks are threads of "
                          "one process, such as those of torch's threaded process group")


def group(process_group: Any = None, *, adopt: bool = False) -> Group:
    """Returns lathe's group of the ranks of a process group; None: the default one.

    Collective at the first call: rank 0's id goes to the others, and lathe makes a communicator of
    its own, so that torch's collectives cannot come in between. adopt takes that of torch's NCCL
    backend instead, which must have made a collective before.
    """
    process_group = process_group or dist.group.WORLD
    if process_group is None:
        raise InvalidArgument("there is no process group: call "
                              "torch.distributed.init_process_group")
    rank = dist.get_rank(process_group)
    with _groups_lock:
        # Ranks that are threads may share the object of a process group.
        known = _groups.setdefault(process_group, {})
        if rank in known:
            return known[rank]
    where = _context()
    if where.device == "sim":
        _check_processes(process_group)
    if adopt:
        backend = process_group._get_backend(torch.device("cuda"))
        made = Group.adopt(where, backend._comm_ptr())
    else:
        ids: list[Any] = [where.unique_id() if rank == 0 else None]
        dist.broadcast_object_list(ids, dist.get_global_rank(process_group, 0), process_group)
        made = Group(where, ids[0], dist.get_world_size(process_group), rank)
    with _groups_lock:
        known[rank] = made
    return made


class Ranks:
    """Ranks that share a sequence axis, and who of them holds which tokens.

    ranks: lathe's group (lathe.torch.group) or a process group of torch. length: of the whole axis.
    balance: "none", "head_tail", "per_document" or "ptrr". cu_seqlens: offsets of packed sequences,
    of the whole axis, on the host. ranges: any table instead of a balance, for each rank its list of
    [first, last) tokens; every token once. flags: names of lathe's GROUP_FLAGS, such as "allgather".
    capacity: the most (tokens, pieces of sequences) of a rank. Then all tensors have that many
    tokens, a rank's own first, and change_layout gives the Ranks another layout: a CUDA graph that
    was captured before replays for it.

    Every rank makes it alike, and makes the same calls over it: the first of a kind is collective.
    It belongs to one thread at a time.
    """

    def __init__(self, ranks: Any, length: int, *, key_length: int = -1, balance: str = "none",
                 cu_seqlens: Sequence[int] | None = None, cu_seqlens_k: Sequence[int] | None = None,
                 block_size: int = 0, bounds: Sequence[int] | None = None,
                 ranges: Sequence[Sequence[tuple[int, int]]] | None = None,
                 flags: Sequence[str] = (), capacity: tuple[int, int] = (0, 0)) -> None:
        self.group = ranks if isinstance(ranks, Group) else group(ranks)
        self.process_group = None if isinstance(ranks, Group) else ranks or dist.group.WORLD
        self.flags = tuple(flags)
        flag_bits(self.flags)
        self.length = length
        self.shard = Shard(self.group.world, self.group.rank, length, key_length=key_length,
                           balance=balance, cu_seqlens=cu_seqlens, cu_seqlens_k=cu_seqlens_k,
                           block_size=block_size, bounds=bounds, ranges=ranges,
                           capacity=capacity)
        self._tables: dict[str, _core.PlanTable] = {}

    def change_layout(self, length: int, *, balance: str = "none",
                      cu_seqlens: Sequence[int] | None = None, block_size: int = 0,
                      bounds: Sequence[int] | None = None,
                      ranges: Sequence[Sequence[tuple[int, int]]] | None = None) -> None:
        """Gives Ranks with a capacity another layout, in the order of torch's current stream.

        Collective. The number of sequences stays: fewer have empty ones behind.
        """
        stream = (0 if _device.simulated() or not torch.cuda.is_available()
                  else torch.cuda.current_stream().cuda_stream)
        self.shard.change_layout(length, balance=balance, cu_seqlens=cu_seqlens,
                                 block_size=block_size, bounds=bounds, ranges=ranges, stream=stream)
        self.length = length

    @property
    def rank(self) -> int:
        """This rank."""
        return self.group.rank

    @property
    def world(self) -> int:
        """The number of ranks."""
        return self.group.world

    def first_token(self) -> int:
        """Returns the number of this rank's first token among those of all ranks."""
        intervals = self.shard.intervals()
        return intervals[0][0] if intervals else 0

    def take(self, tensor: Tensor, dim: int, axis: int = 0) -> Tensor:
        """Returns this rank's tokens of a whole tensor; axis 1: tokens of keys.

        With a capacity zeros follow, up to that many tokens.
        """
        parts = [tensor.narrow(dim, begin, end - begin)
                 for begin, end in self.shard.intervals(axis)] or [tensor.narrow(dim, 0, 0)]
        missing = self.shard.capacity[0] - sum(part.shape[dim] for part in parts)
        if missing > 0:
            shape = list(tensor.shape)
            shape[dim] = missing
            parts.append(tensor.new_zeros(shape))
        return torch.cat(parts, dim) if len(parts) != 1 else parts[0].contiguous()

    def _prepare(self, call: Call, options: Options, alignment: int, *tensors: Tensor | None
                 ) -> tuple[_core.Prepared, Problem]:
        where = _device.context_of(call.inputs, tensors)
        problem = call.problem(options, tensors)
        problem.group(self.group, flag_bits(self.flags))
        outputs = _shapes.outputs_of(problem, call.inputs)
        device = next(each for each in tensors if each is not None).device
        plan = Plan(where, problem)
        self.shard.prepare(plan)

        def infer(given: Any) -> Any:
            raise Unsupported(f"an output of {call.op} has a shape that depends on values, which "
                              "is not there over ranks")

        return _shapes.prepared(plan, call.outputs, outputs, device, infer, zeros=True), problem

    def run(self, call: Call, options: Options, tensors: Tensors) -> tuple[Any, ...]:
        """Runs a call on this rank. Outputs without tokens are 0 where other ranks write them."""
        if not is_compiling():
            return self._run(call, options, tensors)
        _keep_out_of_graphs()
        return Ranks._outside_of_graphs(self, call, options, tensors)

    # _run as torch.compile leaves it alone, once torch.compile asked for it.
    _outside_of_graphs: Callable[..., tuple[Any, ...]]

    def _run(self, call: Call, options: Options, tensors: Tensors) -> tuple[Any, ...]:
        if call.name not in self._tables:
            prepare = functools.partial(self._prepare, call)
            self._tables[call.name] = _core.PlanTable(call.inputs, prepare,
                                                      (Tensor, Parameter), self.shard)
        found = self._tables[call.name].run(options, tuple(map(_aligned, tensors)))
        if found is None:
            raise Unsupported("a tensor is of a subclass of torch.Tensor; over ranks plain tensors "
                              "are taken")
        return found


@constant_in_traces
def _keep_out_of_graphs() -> None:
    """Makes Ranks._outside_of_graphs during a trace: as a decorator it would import dynamo."""
    if not hasattr(Ranks, "_outside_of_graphs"):
        Ranks._outside_of_graphs = torch.compiler.disable(  # type: ignore[no-untyped-call]
            Ranks._run)


def _aligned(tensor: Tensor | None) -> Tensor | None:
    """Returns the tensor or a copy that is as well aligned as the ranks' plan promises."""
    if tensor is None or tensor.data_ptr() % 16 == 0:
        return tensor
    count("copied to an aligned place")
    return tensor.clone(memory_format=torch.contiguous_format)
