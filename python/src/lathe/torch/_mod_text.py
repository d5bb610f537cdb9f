# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Device text of what a mod's call recorded: a function on single numbers.

Tensors from outside are captures, of which single elements are read.
"""
from __future__ import annotations

import struct
from typing import Any, Callable, NamedTuple, Sequence

import torch

from lathe._errors import LatheError, Unsupported
from lathe.torch._mod_record import Record, known_operators
from lathe.torch._mod_traced import Constant, Node, Wide
from lathe.torch._mod_types import (BOOL, FLOAT, INT, Number, c_type, cast, literal, number_of,
                                    range_of)

_MOST = 2**31 - 1  # batch, head and indices lie between 0 and this


class View(NamedTuple):
    """Elements of a capture that indices have not chosen yet: it begins at the text `offset`.

    dim: how many of the captured tensor's dimensions are chosen.
    """

    tensor: int
    offset: str
    dim: int
    dtype: torch.dtype


Operation = Callable[["Writer", Node, Sequence[Any]], Number]
_OPERATIONS: dict[str, Operation] = {}


def operation(*names: str) -> Callable[[Operation], Operation]:
    """Registers how aten's operators of these names are written."""
    def register(function: Operation) -> Operation:
        for name in names:
            _OPERATIONS[name] = function
            known_operators.add(name)
        return function
    return register


class Numbers:
    """The constants of a record as texts: literals, but what varies is read from a capture.

    varying: the constants that differed between calls. used: those that texts read, in the order
    in which the capture `slot` has them; None for a slot: all are literals.
    """

    def __init__(self, record: Record, varying: frozenset[int], slot: int | None) -> None:
        self.values = record.values()
        self.varying, self.slot = varying, slot
        self.used: list[int] = []
        self.ranks = [each.dim() for each in record.captures.tensors]
        self.places = [len(record.constants) + at for at in record.captures.places()]
        self.groups = {at: group for group, members in enumerate(record.captures.groups)
                       for at in members}

    def text(self, index: int, kind: type) -> Number:
        value = self.values[index]
        if self.slot is None or index not in self.varying:
            if not isinstance(value, int):
                raise Unsupported("a number of a mod is known only when the compiled graph runs, "
                                  "and captured tensors leave no room for it; allowed are three")
            number = literal(struct.unpack("d", struct.pack("q", value))[0] if kind is float
                             else value)
            return number
        if index not in self.used:
            self.used.append(index)
        read = f"captures.get<{self.slot}>({self.used.index(index)})"
        if kind is float:
            return Number(f"__longlong_as_double({read})", torch.float64, scalar=True)
        dtype = torch.int64 if kind is Wide else INT
        low, high = range_of(dtype)
        return Number(read if kind is Wide else f"((int){read})", dtype, low, high, scalar=True)

    def begin(self, tensor: int) -> Number:
        """Returns where a captured tensor begins in the capture that it lies in."""
        return self._natural(self.places[tensor])

    def extent(self, tensor: int, dim: int) -> Number:
        """Returns an extent of a captured tensor."""
        return self._natural(self.places[tensor] + 1 + dim)

    def stride(self, tensor: int, dim: int) -> Number:
        """Returns a stride of a captured tensor, in elements."""
        return self._natural(self.places[tensor] + 1 + self.ranks[tensor] + dim)

    def _natural(self, index: int) -> Number:
        found = self.text(index, Wide)  # another length may be too long for an int32
        return found._replace(low=0) if found.value is None else found


class Writer:
    """Writes the lines of one function from nodes of a record."""

    def __init__(self, record: Record, numbers: Numbers, result: Any) -> None:
        self.lines: list[str] = []
        self.record, self.numbers, self.result = record, numbers, result
        self.values: dict[Node, Any] = {}
        for node in self._needed(result):
            self.values[node] = self._value(node)

    def _needed(self, result: Any) -> list[Node]:
        """Returns the nodes that a result needs, in the order in which they were recorded."""
        found: set[int] = set()
        left = [result]
        while left:
            each = left.pop()
            if isinstance(each, (list, tuple)):
                left += each
            elif isinstance(each, Node) and each.index not in found:
                found.add(each.index)
                left += [*each.args, *each.kwargs.values()]
        return [self.record.nodes[index] for index in sorted(found)]

    def returned(self, dtype: torch.dtype) -> str:
        """Returns the text of the result."""
        return cast(self.number(self.result), dtype)

    def refuse(self, node: Node, why: str) -> Unsupported:
        return Unsupported(f"{why}{self.record.place(node)}")

    def number(self, value: Any) -> Number:
        """Returns an operand as a number: what it is, or the only element of a capture."""
        if isinstance(value, Constant):
            return self.numbers.text(value.index, value.kind)
        if not isinstance(value, Node):
            return literal(value)
        found = self.values[value]
        if isinstance(found, View):
            if value.shape:
                raise self.refuse(value, f"a tensor of shape {list(value.shape)} is used as a "
                                  "number; a mod reads single elements of tensors")
            found = self.values[value] = self._read(found)
        assert isinstance(found, Number)
        return found

    def _read(self, view: View) -> Number:
        """Returns the element of a capture that is left, named by a new line."""
        begin = self.numbers.begin(view.tensor)
        parts = [view.offset] if view.offset else []
        parts += [] if parts and begin.value == 0 else [begin.text]
        group = self.numbers.groups[view.tensor]
        text, dtype = f"captures.get<{group}>({' + '.join(parts)})", view.dtype
        if dtype == torch.float64:  # captured by its bits
            text = f"__longlong_as_double({text})"
        elif dtype == BOOL:
            text = f"{text} != 0"
        return self.named(number_of(text, dtype))

    def named(self, number: Number) -> Number:
        """Returns a number that a new line names."""
        name = f"t{len(self.lines)}"
        self.lines.append(f"  const {c_type(number.dtype)} {name} = {number.text};")
        return number._replace(text=name, value=None, scalar=False)

    def _value(self, node: Node) -> Any:
        if node.name == "capture":
            c_type(node.dtype)
            return View(node.target, "", 0, node.dtype)
        if isinstance(node.target, str):
            if node.dtype == FLOAT:
                return Number(node.target, FLOAT)
            return Number(node.target, INT, 0, _MOST)
        if node.name in ("index", "select"):
            return self._chosen(node)
        operands = [self.number(each) if isinstance(each, (Node, Constant, bool, int, float))
                    else each for each in node.args]
        try:
            made = _OPERATIONS[node.name](self, node, operands)
            return self.named(made._replace(text=cast(made, node.dtype), dtype=node.dtype)
                              if made.dtype == node.dtype
                              else number_of(cast(made, node.dtype), node.dtype,
                                             *_kept_range(made, node.dtype)))
        except LatheError as error:
            place = self.record.place(node)
            if place and place not in str(error):
                raise Unsupported(f"{error}{place}") from error
            raise

    def _chosen(self, node: Node) -> Any:
        """Returns what indices leave of a capture."""
        view = self.values.get(node.args[0])
        if not isinstance(view, View):
            raise self.refuse(node, "an index of a number that is no captured tensor")
        indices: Any = node.args[1] if node.name == "index" else [node.args[2]]
        offset, dim = view.offset, view.dim
        for each in indices:
            number = self.number(each)
            text = number.text
            if not number.natural:  # torch counts a negative index from the end
                extent = self.numbers.extent(view.tensor, dim).text
                text = f"({text} < 0 ? {text} + {extent} : {text})"
            stride = self.numbers.stride(view.tensor, dim)
            part = text if stride.value == 1 else f"{text} * (long long){stride.text}"
            offset = f"{offset} + {part}" if offset else part
            dim += 1
        return View(view.tensor, offset, dim, view.dtype)


def _kept_range(number: Number, dtype: torch.dtype) -> tuple[int, int] | tuple[()]:
    """Returns the range of an int that another dtype of ints holds whole."""
    low, high = range_of(dtype)
    if dtype in (torch.bool,) or number.dtype.is_floating_point or dtype.is_floating_point:
        return ()
    return (number.low, number.high) if low <= number.low and number.high <= high else ()
