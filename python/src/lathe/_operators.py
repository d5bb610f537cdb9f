# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The operator table of the library: what each operator takes and gives."""
from __future__ import annotations

import functools
from typing import Any, Mapping, NamedTuple

from lathe import _core
from lathe._errors import InvalidArgument


class Tensor(NamedTuple):
    """A tensor of an operator, as lathe_operator_tensor has it."""

    name: str
    shape: str
    role: str  # "input", "output", "inout"
    optional: bool
    dtypes: str
    alias_of: str | None
    sentence: str
    given_if: str | None
    changed_by: str | None
    wide: bool  # its address and strides count for an alignment


class Option(NamedTuple):
    """An option of an operator; `default` and `allowed` are texts."""

    name: str
    type: str  # "int", "float", "str"
    default: str
    allowed: str
    sentence: str


class Operator(NamedTuple):
    """An operator: its tensors, its options, and whether it can be split over ranks."""

    name: str
    sentence: str
    tensors: Mapping[str, Tensor]
    options: Mapping[str, Option]
    ranks: bool
    least_alignment: int  # bytes that the addresses and strides of wide tensors are multiples of

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.sentence}"]
        for tensor in self.tensors.values():
            optional = ", optional" if tensor.optional else ""
            lines.append(f"  {tensor.name} [{tensor.shape}] {tensor.role}{optional}: "
                         f"{tensor.sentence}")
        for option in self.options.values():
            lines.append(f"  {option.name}={option.default} ({option.allowed}): {option.sentence}")
        return "\n".join(lines)


def of_row(row: Mapping[str, Any]) -> Operator:
    """Returns the operator of a row of the library's table."""
    tensors = {each["name"]: Tensor(**each) for each in row["tensors"]}
    options = {each["name"]: Option(**each) for each in row["options"]}
    return Operator(row["name"], row["sentence"], tensors, options, row["ranks"],
                    row["least_alignment"])


@functools.cache
def operators() -> Mapping[str, Operator]:
    """Returns the operators by name."""
    return {row["name"]: of_row(row) for row in _core.operators()}


# Operators of texts that have a name for as long as the process runs: those torch knows.
_remembered: dict[str, Operator] = {}


def remember(row: Operator) -> None:
    """Makes operator() find an operator of a text; whoever calls keeps the text's handle."""
    _remembered[row.name] = row


def nearest(name: str, names: Any) -> str:
    """Returns "; did you mean X?" for the nearest of `names`, or nothing."""
    import difflib  # where something is wrong anyway: it takes a fifth of the import

    close = difflib.get_close_matches(name, list(names), 1)
    return f"; did you mean {close[0]}?" if close else ""


def operator(name: str) -> Operator:
    """Returns one operator. InvalidArgument names the nearest for one that is not there."""
    if name in _remembered:
        return _remembered[name]
    table = operators()
    if name not in table:
        raise InvalidArgument(f'there is no operator "{name}"; allowed are {", ".join(table)}'
                              + nearest(name, table))
    return table[name]
