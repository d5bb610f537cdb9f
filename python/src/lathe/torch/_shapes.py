# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Shapes of outputs, as functions of the inputs' shapes, and how outputs are made of them.

The library infers outputs from inputs (lathe_problem_infer) and names the dim of every extent. From
these names follows where each extent of an output stands among the inputs, so the shapes of further
calls are read off the inputs, also where these are symbols of torch.compile.
"""
from __future__ import annotations

import functools
from typing import Any, Callable, Mapping, NamedTuple, Sequence

import torch

from lathe import _core
from lathe._errors import InvalidArgument
from lathe._objects import DeviceText, Plan, Problem
from lathe._operators import operator
from lathe._run import dtype_name

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i32": torch.int32,
          "i64": torch.int64, "f8_e4m3": torch.float8_e4m3fn, "u8": torch.uint8}
# Where a dim is in no input, it equals this one: sequences that are not packed are rows of a batch.
_SAME_AS = {"N": "B"}


class Extent(NamedTuple):
    """An extent of an output: that of an input's dimension and a number more."""

    tensor: int  # the index of the input; -1: only the number counts
    dim: int
    added: int


class Output(NamedTuple):
    """An output of a call."""

    name: str
    dtype: torch.dtype
    extents: tuple[Extent, ...] | None  # None: they depend on values and are inferred
    like: int  # an input that has the same dims and dtype; -1: none
    tokens: bool  # it has a dimension of tokens, which ranks share


def shape_of(extents: Sequence[Extent], tensors: Sequence[Any]) -> tuple[Any, ...]:
    """Returns an output's shape for these inputs, whose extents may be symbols."""
    return tuple(tensors[tensor].shape[dim] + added if tensor >= 0 else added
                 for tensor, dim, added in extents)


def declared_problem(op: str, names: Sequence[str], tensors: Sequence[torch.Tensor | None],
                     options: Mapping[str, Any]) -> Problem:
    """Returns a problem with these inputs; extents that torch knows as symbols are open.

    An option that takes a file has the file's text here.
    """
    known = operator(op).options
    texts = {name for name in options if name in known and "FILE" in known[name].allowed}
    problem = Problem(op)
    for name, value in options.items():
        problem.set(name, DeviceText(value) if name in texts else value)
    for name, tensor in zip(names, tensors):
        if tensor is not None:
            shape = [extent if isinstance(extent, int) else -1 for extent in tensor.shape]
            problem.tensor(name, dtype_name(name, tensor), shape)
    return problem


def _asking(op: str, options: Mapping[str, Any], wanted: Sequence[str]) -> dict[str, Any]:
    """Returns the options with those that ask for outputs which do not come unasked."""
    known = operator(op).options
    return {**options, **{f"output_{name}": 1 for name in wanted if f"output_{name}" in known}}


def wanted_problem(op: str, names: Sequence[str], tensors: Sequence[torch.Tensor | None],
                   options: Mapping[str, Any], wanted: Sequence[str]) -> Problem:
    """Returns a problem that declares, of the outputs that follow, those that are wanted."""
    full = declared_problem(op, names, tensors, _asking(op, options, wanted))
    full.infer()
    problem = declared_problem(op, names, tensors, options)
    for row in full.tensors():
        if row["declared"] and row["name"] in wanted and row["name"] not in names:
            problem.tensor(row["name"], row["dtype"], row["shape"])
    return problem


def _extent(row: Mapping[str, Any], d: int, rows: Sequence[Mapping[str, Any]],
            given: Sequence[str]) -> Extent | None:
    """Returns where an extent of an output stands among the inputs."""
    if not row["dims"][d]:
        return Extent(-1, 0, row["shape"][d])
    for dim in (row["dims"][d], _SAME_AS.get(row["dims"][d])):
        for source in rows:
            if dim is None or source["name"] not in given or dim not in source["dims"]:
                continue
            at = source["dims"].index(dim)
            return Extent(given.index(source["name"]), at, row["added"][d] - source["added"][at])
    known = row["shape"][d] >= 0 and not row["varies"][d]
    return Extent(-1, 0, row["shape"][d]) if known else None


def outputs_of(problem: Problem, names: Sequence[str]) -> list[Output]:
    """Returns the outputs that a problem declares, in the operator's order."""
    rows = [row for row in problem.tensors() if row["declared"]]
    given = list(names)
    inputs = [row for row in rows if row["name"] in given]
    outputs = []
    for row in rows:
        if row["name"] in given:
            continue
        extents = [_extent(row, d, inputs, given) for d in range(len(row["dims"]))]
        known = tuple(extent for extent in extents if extent is not None)
        like = next((given.index(source["name"]) for source in inputs
                     if source["dims"] == row["dims"] and source["dtype"] == row["dtype"]
                     and source["added"] == row["added"]), -1)
        outputs.append(Output(row["name"], DTYPES[row["dtype"]],
                              known if len(known) == len(extents) else None, like,
                              row["token_dim"] >= 0))
    return outputs


def known_shapes(op: str, names: Sequence[str], tensors: Sequence[torch.Tensor | None],
                 options: Mapping[str, Any], wanted: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Returns the outputs' shapes where they follow from the inputs' alone.

    Extents that torch knows as symbols become numbers, so a trace holds for these alone.
    """
    fixed = [None if each is None else each.new_empty([int(extent) for extent in each.shape])
             for each in tensors]
    problem = declared_problem(op, names, fixed, _asking(op, options, wanted))
    problem.infer()
    shapes = {row["name"]: tuple(row["shape"]) for row in problem.tensors() if row["declared"]}
    return {name: shape for name, shape in shapes.items() if min(shape, default=0) >= 0}


def inferred_shapes(op: str, names: Sequence[str], tensors: Sequence[torch.Tensor | None],
                    options: Mapping[str, Any], wanted: Sequence[str]
                    ) -> dict[str, tuple[int, ...]]:
    """Returns the outputs' shapes where they depend on values, which are read on the host."""
    problem = declared_problem(op, names, tensors, _asking(op, options, wanted))
    values = {name: tensor.cpu() for name, tensor in zip(names, tensors)
              if tensor is not None and not tensor.is_floating_point()}
    problem.infer(values)
    shapes = {row["name"]: tuple(row["shape"]) for row in problem.tensors() if row["declared"]}
    for name, shape in shapes.items():
        if min(shape, default=0) < 0:
            raise InvalidArgument(f"{name} has shape {shape}: an extent does not follow from the "
                                  "inputs")
    return shapes


def prepared(plan: Plan, names: Sequence[str], outputs: Sequence[Output],
             device: torch.device, infer: Callable[[Any], Any], zeros: bool = False
             ) -> _core.Prepared:
    """Returns the plan with the outputs of these names, which are made fresh and contiguous.

    infer((options, *tensors)) returns shapes that depend on values, by name. zeros: outputs that
    hold no tokens begin as 0; over ranks each rank writes only some of them.
    """
    by_name = {output.name: output for output in outputs}
    recipes: list[Any] = []
    for name in names:
        output = by_name.get(name)
        if output is None:
            recipes.append(None)
            continue
        keywords = {"dtype": output.dtype, "device": device}
        begins = torch.zeros if zeros and not output.tokens else torch.empty
        if output.extents is None:
            make = functools.partial(_make_inferred, begins, name, infer, keywords)
            recipes.append((make, keywords, None, -1))
        else:
            like = output.like if begins is torch.empty else -1
            recipes.append((begins, keywords, output.extents, like))
    workspace = functools.partial(torch.empty, dtype=torch.uint8, device=device)
    return _core.Prepared(plan, tuple(recipes), workspace, torch.empty_like)


def _make_inferred(make: Any, name: str, infer: Callable[[Any], Any], keywords: dict[str, Any],
                   given: Any) -> Any:
    return make(infer(given)[name], **keywords)
