# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""run(): any operator on arrays of NumPy, CuPy or torch, by the names of the operator table."""
from __future__ import annotations

import importlib
import sys
from typing import Any, Callable, Mapping, Sequence

from lathe import _core
from lathe._errors import InvalidArgument, NoDevice
from lathe._objects import Context, Group, Plan, Problem, Shard, context as shared_context
from lathe._operators import Operator, nearest, operator

# How a dtype of lathe is called by the libraries that arrays come from. NumPy has no bfloat16: its
# bits are held by unsigned 16-bit numbers.
_WORDS = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "i32": "int32", "i64": "int64",
          "f8_e4m3": "float8_e4m3fn", "u8": "uint8"}
_DTYPES = {**{word: name for name, word in _WORDS.items()}, "uint16": "bf16"}


class Results(dict[str, Any]):
    """The outputs by name; results.o is results["o"]."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            names = ", ".join(self)
            raise AttributeError(f"there is no result {name}; there are {names}") from None


# The same by a buffer's format of one character, as the module struct writes it.
_FORMATS = {"f": "float32", "e": "float16", "i": "int32", "l": "int64", "q": "int64", "H": "uint16",
            "B": "uint8"}
_DLPACK_CPU = 1


def dtype_name(name: str, array: Any) -> str:
    """Returns lathe's name of an array's dtype: "bf16"."""
    if hasattr(array, "dtype"):
        word = str(array.dtype).rpartition(".")[2]
    else:
        format = memoryview(array).format
        word = _FORMATS.get(format.lstrip("@=<"), format)
    if word not in _DTYPES:
        raise InvalidArgument(f"{name} has dtype {word}; allowed are {', '.join(_DTYPES)}")
    return _DTYPES[word]


def _library_of(array: Any) -> str:
    return type(array).__module__.partition(".")[0]


def _has_buffer(array: Any) -> bool:
    try:
        memoryview(array).release()
    except TypeError:
        return False
    return True


def _check_array(name: str, array: Any) -> None:
    """Raises InvalidArgument unless a run can borrow the array."""
    described = hasattr(array, "__dlpack__") and hasattr(array, "dtype")
    if not described and not _has_buffer(array):
        raise InvalidArgument(f"{name} is of type {type(array).__name__}; allowed is an array with "
                              "__dlpack__ or a buffer, of NumPy, CuPy, torch or JAX: "
                              f"numpy.array({name}) makes one of a list")
    if any(each.__name__ == "MaskedArray" for each in type(array).__mro__):
        raise InvalidArgument(f"{name} is a masked array, and no kernel reads its mask; allowed is "
                              f"a plain array: give {name}.filled(0), or {name}.data")


def _check_written(name: str, array: Any) -> None:
    """Raises InvalidArgument for arrays of a library whose arrays never change."""
    if _library_of(array) in ("jax", "jaxlib"):
        raise InvalidArgument(f"{name} is an array of JAX, which never changes, and the run writes "
                              "it; allowed is an array of NumPy, CuPy or torch: give a copy there")


def _shape_of(array: Any) -> tuple[int, ...]:
    shape = array.shape if hasattr(array, "shape") else memoryview(array).shape
    return tuple(shape or ())


def _on_host(array: Any) -> bool:
    if not hasattr(array, "__dlpack_device__"):
        return True
    return int(array.__dlpack_device__()[0]) == _DLPACK_CPU


def allocator(array: Any) -> Callable[[tuple[int, ...], str], Any]:
    """Returns empty(shape, dtype) that makes arrays of the library and on the device of `array`.

    Buffers have no library, and arrays of JAX never change: their outputs are of NumPy, or of CuPy.
    """
    library = _library_of(array)
    if library in ("jax", "jaxlib") or not hasattr(array, "dtype"):
        library = "numpy" if _on_host(array) else "cupy"
        if library not in sys.modules:
            try:
                importlib.import_module(library)
            except ImportError:
                raise InvalidArgument("outputs for arrays of type "
                                      f"{type(array).__name__} would be of {library}, which is not "
                                      "installed; give the outputs too") from None
    if library == "torch":
        torch = sys.modules["torch"]
        return lambda shape, dtype: torch.empty(shape, dtype=getattr(torch, _WORDS[dtype]),
                                                device=array.device)
    module = sys.modules.get(library)
    if module is None or not hasattr(module, "empty"):
        raise InvalidArgument(f"there is no function empty for arrays of type {type(array)}; give "
                              "the outputs too")
    words = {**_WORDS, "bf16": "uint16"} if library == "numpy" else _WORDS
    return lambda shape, dtype: module.empty(shape, words[dtype])


def _host_values(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Returns those whose values the host can read; from them exact extents follow."""
    found = {}
    for name, array in tensors.items():
        if _on_host(array) and dtype_name(name, array) in ("i32", "i64"):
            found[name] = array
    return found


def _split(op: Operator, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Splits keywords into tensors and options. None is the same as not given."""
    tensors: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for name, value in given.items():
        if name not in op.tensors and name not in op.options:
            names = (*op.tensors, *op.options)
            raise InvalidArgument(f"{op.name} has no tensor or option {name}; allowed are "
                                  + ", ".join(names) + nearest(name, names))
        if value is not None:
            (tensors if name in op.tensors else options)[name] = value
    return tensors, options


def make_problem(op: str, tensors: Mapping[str, Any], options: Mapping[str, Any], *,
                 group: Group | None = None, flags: Sequence[str] = (),
                 alignment: int | None = None) -> tuple[Problem, dict[str, tuple[int, ...]]]:
    """Returns the problem of a call, open in what may vary, and the shapes of its tensors."""
    problem = Problem(op, alignment=alignment, group=group, flags=flags, **options)
    for name, array in tensors.items():
        problem.tensor(name, dtype_name(name, array), _shape_of(array))
    problem.infer(_host_values(tensors))
    shapes = {each["name"]: each["shape"] for each in problem.tensors() if each["declared"]}
    problem.open()
    return problem, shapes


def run(op: str | Operator, *, context: Context | None = None, stream: Any = None,
        shard: Shard | None = None, group: Group | None = None, flags: Sequence[str] = (),
        **given: Any) -> Results:
    """Runs an operator once and returns its outputs by name, as arrays like the inputs.

    Tensors and options are keywords with the names of the operator table (lathe.operators()):

        o = lathe.run("kda", q=q, k=k, v=v, g=g, beta=beta, scale=0.1).o

    An output that is given is written in place and alone is computed; in-out tensors are changed in
    place and returned too. With NumPy arrays the simulator computes (LATHE_DEVICE=sim), as they lie
    in host memory. Over a group every rank makes the same call, with its tokens and its shard. Each
    call looks its plan up in the cache of kernels, and prepares a shard for it: who calls often
    makes a Plan.
    """
    table = op if isinstance(op, Operator) else operator(op)
    tensors, options = _split(table, given)
    if not tensors:
        raise InvalidArgument(f"{table.name} was given no tensor; it takes "
                              + ", ".join(table.tensors))
    for name, array in tensors.items():
        _check_array(name, array)
    problem, shapes = make_problem(table.name, tensors, options, group=group, flags=flags)
    described = {each["name"]: each for each in problem.tensors()}
    for name, array in tensors.items():
        if described[name]["written"]:
            _check_written(name, array)
    first = next(iter(tensors.values()))
    where = context or shared_context()
    if where.device == "cuda" and _on_host(first):
        raise NoDevice(f"{next(iter(tensors))} lies in host memory, which a GPU does not compute "
                       'on; set LATHE_DEVICE=sim, or give context=lathe.Context("sim"), for the '
                       "simulator")
    if group is None:  # ranks make the same plan, whatever their arrays
        problem.align(table.name, tensors)
    plan = Plan(where, problem)
    empty = allocator(first)
    results = Results()
    arrays: list[Any] = []
    for name in plan.slots:
        array = tensors.get(name)
        if array is None:
            array = empty(shapes[name], described[name]["dtype"])
        if described[name]["written"]:
            results[name] = array
        arrays.append(array)
    for each in described.values():
        if each["alias_of"]:
            results[each["name"]] = tensors[each["alias_of"]]
    if shard is not None:
        shard.prepare(plan)
    plan(*arrays, stream=stream, shard=shard)
    return results


def warm(manifest: str | Sequence[str], arch: str | Sequence[str] | None = None, *,
         cache_dir: str | None = None) -> list[dict[str, Any]]:
    """Compiles what the lines of a manifest need, or finds it cached; needs no device.

    manifest: a file's name, or lines: problems, models and layers (docs/cache.md). arch: such as
    "sm_90a", or several; None: the device's.
    Returns {"op", "arch", "compiled", "hits", "line"} for each problem and architecture.
    """
    if isinstance(manifest, str):
        with open(manifest, encoding="utf-8") as file:
            manifest = file.read().split("\n")
    names = [arch] if isinstance(arch, str) else list(arch or [])
    contexts = [Context("none", arch=name, cache_dir=cache_dir) for name in names]
    contexts = contexts or [shared_context()]
    rows = []
    # A comment is a blank line here, so that the lines keep their numbers.
    lines = ["" if line.lstrip().startswith("#") else line.rstrip("\n") for line in manifest]
    for number, line in _core.manifest_lines("\n".join(lines)):
        problem = Problem.parse(line)
        for each in contexts:
            compiled, hits = each.warm(problem)
            rows.append({"op": problem.op, "arch": each.info()["arch"], "compiled": compiled,
                         "hits": hits, "line": number})
    return rows


__all__ = ["Results", "run", "warm", "make_problem", "allocator", "dtype_name", "_core"]
