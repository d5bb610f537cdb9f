# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Context, Problem, Plan, Group and Shard: the objects of the C API."""
from __future__ import annotations

import os
import threading
from typing import Any, Mapping, Sequence

from lathe import _core, _library
from lathe._errors import InvalidArgument, LatheError, Status

GROUP_FLAGS = {"reduce_parameter_grads": 1, "allgather": 2, "dispatch": 4, "exchange_heads": 8,
               "narrow_gradients": 16, "rank_invariant": 32}
BALANCES = ("none", "head_tail", "per_document", "ptrr")


class DeviceText(str):
    """Device text for an option that takes a file, such as score_mod: the text itself, no name."""


class Context(_core.Context):
    """A device and a cache.

    device: "cuda", "sim" (the simulator), "none" (compile only) or "default": what LATHE_DEVICE
    says, else cuda. arch: what to compile for, such as "sm_90a"; the device's own by default.
    cache_dir: where kernels are kept; "off": nowhere. Any thread may use it.
    """

    def __init__(self, device: str = "default", ordinal: int = 0, arch: str | None = None,
                 cache_dir: str | os.PathLike[str] | None = None) -> None:
        _library.find_compiler()
        super().__init__(device, ordinal, arch, cache_dir)

    def __repr__(self) -> str:
        info = self.info()
        return f'lathe.Context("{info["device"]}", {info["ordinal"]}, arch="{info["arch"]}")'

    @property
    def device(self) -> str:
        """The kind of device: "cuda", "sim" or "none"."""
        return str(self.info()["device"])

    @property
    def compiled(self) -> int:
        """Kernels that this context compiled."""
        return int(self.info()["compiled"])

    @property
    def hits(self) -> int:
        """Kernels that this context found on disk or in memory."""
        return int(self.info()["hits"])


class Problem(_core.Problem):
    """What is asked of an operator: tensors, options and the group they are split over.

    tensors: {"q": ("bf16", (-1, -1, 8, 128)), ...}; -1 varies from run to run. flags: names of
    GROUP_FLAGS. Options are keywords: Problem("kda", tensors, state_v_first=True).
    """

    def __init__(self, op: str, tensors: Mapping[str, tuple[str, Sequence[int]]] | None = None, *,
                 alignment: int | None = None, group: Group | None = None,
                 flags: Sequence[str] = (), **options: Any) -> None:
        super().__init__(op)
        for option, value in options.items():
            self.set(option, value)
        for name, (dtype, shape) in (tensors or {}).items():
            self.tensor(name, dtype, shape)
        if alignment is not None:
            self.alignment(alignment)
        if group is not None:
            self.group(group, flag_bits(flags))

    def set(self, option: str, value: Any) -> None:
        """Sets an option. None leaves its default; a DeviceText is text of the device.

        A tuple or list of two integers or more is the text of one: "16,16,32".
        """
        if value is None:
            return
        if isinstance(value, DeviceText):
            value = value.encode()
        elif isinstance(value, os.PathLike):
            value = os.fspath(value)
        elif (isinstance(value, (tuple, list)) and len(value) > 1
              and all(type(each) is int for each in value)):
            value = ",".join(map(str, value))
        elif type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0:
            value = value.item()  # numpy.True_, numpy.int64(1), numpy.float32(0.5)
        try:
            super().set(option, value)
        except (TypeError, OverflowError):
            raise InvalidArgument(f"option {option} is {value!r}; allowed are text and one number, "
                                  "an integer of at most 64 bits") from None

    @property
    def op(self) -> str:
        """The operator's name."""
        import json  # not at the top: few programs ask

        return str(json.loads(self.text())["op"])

    def __repr__(self) -> str:
        return f"lathe.Problem.parse({self.text()!r})"


class Plan(_core.Plan):
    """The kernels of a problem, compiled or loaded. plan(*tensors) enqueues a run."""

    def __repr__(self) -> str:
        return f"<lathe.Plan: {', '.join(each['name'] for each in self.kernels())}>"


class Group(_core.Group):
    """Ranks that share a sequence; every rank makes it. See Context.unique_id."""

    def __repr__(self) -> str:
        return f"<lathe.Group: rank {self.rank} of {self.world}>"


def _balance_number(balance: str) -> int:
    if balance not in BALANCES:
        raise InvalidArgument(f'balance is "{balance}"; allowed are {", ".join(BALANCES)}')
    return BALANCES.index(balance)


class Shard(_core.Shard):
    """Who holds which tokens of a sequence axis that is split over ranks.

    length: of the whole axis. balance: "none", "head_tail", "per_document" or "ptrr".
    cu_seqlens, cu_seqlens_k: offsets of packed sequences, on the host. ranges: any table instead of
    a balance, for each rank its list of [first, last) tokens; every token once. capacity: the most
    tokens and pieces of sequences of a rank, (tokens, pieces); then tensors have that many tokens,
    of which a rank's own are the first, and change_layout gives the shard another layout.
    """

    def __init__(self, world: int, rank: int, length: int, *, key_length: int = -1,
                 balance: str = "none", cu_seqlens: Sequence[int] | None = None,
                 cu_seqlens_k: Sequence[int] | None = None, block_size: int = 0,
                 bounds: Sequence[int] | None = None,
                 ranges: Sequence[Sequence[tuple[int, int]]] | None = None,
                 capacity: tuple[int, int] = (0, 0)) -> None:
        super().__init__(world, rank, length, key_length=key_length,
                         balance=_balance_number(balance), cu_seqlens=cu_seqlens,
                         cu_seqlens_k=cu_seqlens_k, block_size=block_size, bounds=bounds,
                         ranges=ranges, capacity_tokens=capacity[0], capacity_pieces=capacity[1])
        self.world, self.rank, self.capacity = world, rank, capacity

    def change_layout(self, length: int, *, balance: str = "none",
                      cu_seqlens: Sequence[int] | None = None, block_size: int = 0,
                      bounds: Sequence[int] | None = None,
                      ranges: Sequence[Sequence[tuple[int, int]]] | None = None,
                      stream: int = 0) -> None:
        """Gives a shard with a capacity another layout. Collective.

        What is on the stream so far, such as the replay of a graph, has the old layout, and what
        comes later the new one. The number of sequences stays: fewer have empty ones behind.
        """
        self.update(self.world, self.rank, length, balance=_balance_number(balance),
                    cu_seqlens=cu_seqlens, block_size=block_size, bounds=bounds, ranges=ranges,
                    capacity_tokens=self.capacity[0], capacity_pieces=self.capacity[1],
                    stream=stream)


def flag_bits(flags: Sequence[str]) -> int:
    """Returns the number that the C API takes for names of GROUP_FLAGS."""
    bits = 0
    for flag in flags:
        if flag not in GROUP_FLAGS:
            raise InvalidArgument(f'a flag is "{flag}"; allowed are {", ".join(GROUP_FLAGS)}')
        bits |= GROUP_FLAGS[flag]
    return bits


shared_contexts: dict[tuple[str, int], Context] = {}
_contexts_lock = threading.Lock()
_contexts_process = os.getpid()


def context(device: str | None = None, ordinal: int = 0) -> Context:
    """Returns the process's context of a device; it is made at the first call and kept.

    device None: LATHE_DEVICE if it is set, else cuda. The simulator is never chosen in silence.
    """
    chosen = device or os.environ.get("LATHE_DEVICE") or "cuda"
    chosen = "default" if chosen == "auto" else chosen
    with _contexts_lock:
        if os.getpid() != _contexts_process and shared_contexts:
            raise LatheError("a child of fork cannot use the device that its parent used; start it "
                             'with multiprocessing\'s "spawn"', Status.CUDA)
        if (chosen, ordinal) not in shared_contexts:
            shared_contexts[chosen, ordinal] = Context(chosen, ordinal)
        return shared_contexts[chosen, ordinal]
