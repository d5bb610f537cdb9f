# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The extension, python/src/core: the C API of lathe for the package. A text here is the C text.

plan_table.c begins with the path of a call of lathe.torch through PlanTable and Prepared.
"""
from os import PathLike
from typing import Any, Callable, Self, Sequence, final

def operators() -> list[dict[str, Any]]:
    """Returns the operator table: tensors, options and sentences."""
def parse_operator(text: bytes, file: str, /) -> tuple[object, dict[str, Any]]:
    """Makes an operator of a text: an object that keeps it, and its table."""
def version() -> str:
    """Returns the version of the library."""
def doctor() -> str:
    """Returns what the machine offers, a line for each item."""
def shard_plan(kind: str, input: str, /) -> str:
    """Calls the pure functions behind context parallelism."""
def set_log(sink: Callable[[int, str], object] | None, /) -> None:
    """Calls sink(level, text) for each message; None: for none."""
def on_compile(sink: Callable[[str, str, str, str, str, str, float], object] | None, /) -> None:
    """Calls sink(kernel, arch, key, spec, call, line, milliseconds) for each kernel that is
    compiled; None: for none."""
def manifest_lines(text: str, /) -> list[tuple[int, str]]:
    """Returns the problems of a manifest, as lines, with the number of the line that says each."""

class Context:
    """A device and a cache. device is cuda, sim, none (compile only) or default, which is
    LATHE_DEVICE if that is set, else cuda."""

    def __init__(self, device: str = "default", ordinal: int = 0, arch: str | None = None,
                 cache_dir: str | PathLike[str] | None = None) -> None: ...
    def info(self) -> dict[str, Any]:
        """Returns the device, its architecture, the compiler and the cache."""
    def synchronize(self, stream: Any = None, /) -> None:
        """Waits for the work on a stream; None: the legacy default one."""
    def unique_id(self) -> bytes:
        """Returns an id that one rank gives to the others of a Group."""
    def warm(self, problem: Problem, /) -> tuple[int, int]:
        """Compiles what the problem needs, or finds it cached."""

class Problem:
    """What is asked of an operator."""

    def __init__(self, op: str) -> None: ...
    @classmethod
    def parse(cls, line: str, /) -> Self:
        """Makes the problem of a manifest's line. Opens no file."""
    def tensor(self, name: str, dtype: str, shape: Sequence[int], /) -> None:
        """Declares a tensor; -1 in the shape varies from run to run."""
    def alignment(self, bytes: int, /) -> None:
        """Promises that addresses and strides are multiples of it; default 16."""
    def align(self, op: str, arrays: dict[str, Any], /) -> None:
        """Promises the alignment that these arrays have, a dictionary by name."""
    def set(self, option: str, value: Any, /) -> None:
        """Sets an option. bytes are the text of an option that takes a file."""
    def group(self, group: Group, flags: int = 0, /) -> None:
        """Splits the sequence axis over a group."""
    def infer(self, values: dict[str, Any] | None = None, /) -> None:
        """Declares the outputs that follow; values: host tensors by name."""
    def open(self) -> None:
        """Leaves every extent open that may vary without a new kernel."""
    def text(self) -> str:
        """Returns the problem as a manifest's line."""
    def tensors(self) -> list[dict[str, Any]]:
        """Returns what is declared, in the order of the operator's table."""

class Plan:
    """The kernels of a problem, compiled or loaded. A call plan(*tensors, stream=None,
    workspace=None, shard=None) enqueues a run on tensors in the order of slots; Nones among them do
    not count. stream None is the one that the tensors' library works on. workspace is a tensor, or
    a function of a number of bytes that returns one; None is memory that the plan keeps for that
    stream."""

    def __init__(self, context: Context, problem: Problem) -> None: ...
    @property
    def slots(self) -> tuple[str, ...]:
        """The names of the tensors that a run takes, in order."""
    @property
    def context(self) -> Context:
        """The context that the plan was made in."""
    def __call__(self, *tensors: Any, stream: Any = None, workspace: Any = None,
                 shard: Shard | None = None) -> None:
        """Enqueues a run; see the class."""
    def workspace(self, *tensors: Any, shard: Shard | None = None) -> int:
        """Returns the device bytes that a run needs."""
    def estimate(self, *tensors: Any, shard: Shard | None = None) -> dict[str, Any]:
        """Returns bytes, operations and a predicted time."""
    def kernels(self) -> list[dict[str, Any]]:
        """Returns the plan's kernels: names, specs, keys, registers."""

@final
class Prepared:
    """A plan and what PlanTable.run needs around it. workspace: as a call of the plan takes it.
    outputs: for each output None, if the call has none such, or (make, keywords, extents, like). An
    output is make(*extents, **keywords); extents are (name, dim, added): the extent of dimension
    dim of the input with this index among the table's names, or of none for -1, and a number more.
    Where extents is None, it is make((options, *inputs)). like is the index of an input with the
    same shape and dtype, or -1: if that is contiguous, the output is make_like(input)."""

    def __init__(self, plan: Plan, outputs: tuple[Any, ...], workspace: Any,
                 make_like: Callable[[Any], Any]) -> None: ...
    def into(self, *tensors: Any) -> None:
        """Runs the plan on inputs and outputs that are given."""
    @property
    def plan(self) -> Plan:
        """The plan."""

@final
class PlanTable:
    """table(options, *tensors) returns what build(options, alignment, *tensors) made for tensors of
    that kind; build returns (value, problem). The options must be hashable. With types it returns
    None if a tensor is of another type. With a shard, runs are over its group, and every entry
    promises the best alignment: ranks must have the same entries. op: the operator's name, which
    says of which tensors the alignment counts. copy(tensor) makes a copy that a run takes for a
    tensor that is less aligned than the operator takes; without it such a tensor is refused.
    changes: pairs of indices of names, a tensor that a call changes in place and the one that makes
    it do so."""

    def __init__(self, names: tuple[str, ...], build: Callable[..., tuple[Any, Problem]],
                 types: tuple[type, ...] = (), shard: Shard = ...,
                 modes: tuple[Callable[[], object], ...] = (),
                 gradients: Callable[[], bool] = ..., negated: Callable[[Any], bool] = ...,
                 rows: int = 0, kept: int = 0, op: str = ...,
                 copy: Callable[[Any], Any] = ..., changes: tuple[tuple[int, int], ...] = (),
                 note: Callable[[list[Any]], object] = ...) -> None: ...
    def __call__(self, options: Any, /, *tensors: Any) -> Any:
        """Returns what build made for tensors of this kind, or None; see the class."""
    def run(self, options: Any, tensors: tuple[Any, ...], /) -> tuple[Any, ...] | None:
        """Finds the Prepared of a call, runs it and returns the outputs. Returns None if a tensor
        is of another type than `types` has."""
    def eager(self, options: Any, tensors: tuple[Any, ...], /) -> tuple[Any, ...] | None:
        """Runs a call as run does, and returns None too if one of modes() says yes, or if a tensor
        would have to be copied: those whose bits are set in `rows` have contiguous rows and are not
        expanded, the others are contiguous, except for those whose bits are set in `kept`; and
        negated(tensor) says no. options may be a dictionary, whose Nones do not count."""
    def inference(self, options: Any, tensors: tuple[Any, ...], outputs: tuple[Any, ...] = ..., /
                  ) -> tuple[Any, ...] | None:
        """Runs a call as eager does, and returns None too if gradients() says yes and a tensor
        requires a gradient. outputs, which may be left out: tensors that are written in place of
        fresh ones, None for each that the call does not have. note(list) is told of what the call
        changed."""
    def clear(self) -> None:
        """Forgets all entries."""
    def __len__(self) -> int:
        """Returns the number of entries."""

class Group:
    """Ranks that share a sequence. Collective: all ranks make it, with one id."""

    def __init__(self, context: Context, id: bytes, world: int, rank: int,
                 timeout_ms: int = 0) -> None: ...
    @classmethod
    def from_env(cls, context: Context, timeout_ms: int = 0, /) -> Self:
        """Takes rank and world from a launcher."""
    @classmethod
    def adopt(cls, context: Context, communicator: int, /) -> Self:
        """Uses a communicator, which stays the caller's."""
    @property
    def rank(self) -> int:
        """This rank."""
    @property
    def world(self) -> int:
        """The number of ranks."""
    def split(self, color: int, key: int, /) -> Self | None:
        """Collective: ranks of one color become a group."""
    def check(self) -> None:
        """Raises what went wrong, if it did."""
    def abort(self) -> None:
        """Ends pending communication on this rank."""

class Shard:
    """Who holds which tokens of a sequence axis that is split over ranks."""

    def __init__(self, world: int, rank: int, length: int, *, key_length: int = -1,
                 balance: int = 0, cu_seqlens: Sequence[int] | None = None,
                 cu_seqlens_k: Sequence[int] | None = None, block_size: int = 0,
                 bounds: Sequence[int] | None = None,
                 ranges: Sequence[Sequence[tuple[int, int]]] | None = None,
                 capacity_tokens: int = 0, capacity_pieces: int = 0) -> None: ...
    def update(self, world: int, rank: int, length: int, *, key_length: int = -1,
               balance: int = 0, cu_seqlens: Sequence[int] | None = None,
               cu_seqlens_k: Sequence[int] | None = None, block_size: int = 0,
               bounds: Sequence[int] | None = None,
               ranges: Sequence[Sequence[tuple[int, int]]] | None = None,
               capacity_tokens: int = 0, capacity_pieces: int = 0, stream: int = 0) -> None:
        """Collective: gives a shard with a capacity another layout, in the order of a stream;
        arguments as of Shard."""
    def prepare(self, plan: Plan, /) -> None:
        """Collective: makes the tables that runs of the plan on this shard need."""
    def intervals(self, axis: int = 0, /) -> list[tuple[int, int]]:
        """Returns this rank's positions as pairs of begin and end; axis 1: of keys."""
