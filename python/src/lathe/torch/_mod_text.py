# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Device text of graphs of aten: what score_mod and mask_mod of flex_attention become.

A graph has numbers only: floats, ints and bools. Tensors from outside are captures, of which single
elements are read.
"""
from __future__ import annotations

import math
from typing import Any, Callable, NamedTuple, Sequence

import torch
from torch.fx import Graph, Node

from lathe._errors import Unsupported

MOST_CAPTURES = 4


class View(NamedTuple):
    """Elements of a capture that indices have not chosen yet: it begins at the text `offset`."""

    capture: int
    offset: str
    shape: tuple[int, ...]
    dtype: torch.dtype


class Number(NamedTuple):
    """A text of one number, of the C type `kind`; `natural` if it cannot be negative."""

    text: str
    kind: str
    natural: bool = False


def kind_of(dtype: torch.dtype) -> str:
    """Returns the C type of numbers of a dtype; floats of any width are computed in float."""
    if dtype == torch.bool:
        return "bool"
    if dtype.is_floating_point:
        return "float"
    if dtype.is_complex:
        raise Unsupported(f"a mod has a number of dtype {dtype}; allowed are floats, ints, bools")
    return "long long" if dtype == torch.int64 else "int"


def literal(value: Any) -> Number:
    """Returns a Python number as a text of the device."""
    if isinstance(value, bool):
        return Number("true" if value else "false", "bool", True)
    if isinstance(value, int):
        if -2**31 < value < 2**31:
            return Number(f"{value}", "int", value >= 0)
        return Number(f"{value}LL", "long long", value >= 0)
    if isinstance(value, float):
        if math.isnan(value):
            return Number("(minus_infinity() - minus_infinity())", "float")
        if math.isinf(value):
            return Number("minus_infinity()" if value < 0 else "(-minus_infinity())", "float")
        return Number(f"{value!r}f", "float", value >= 0)
    raise Unsupported(f"a mod has the constant {value!r}; allowed are numbers")


def cast(number: Number, kind: str) -> str:
    """Returns the text of a number as one of another C type."""
    if number.kind == kind:
        return number.text
    if kind == "float" and number.text.lstrip("-").isdigit():
        return f"{number.text}.0f"
    return f"({number.text} != 0)" if kind == "bool" else f"(({kind}){number.text})"


_OTHER_NAMES = {"__lshift__": "bitwise_left_shift", "__rshift__": "bitwise_right_shift",
                "__and__": "bitwise_and", "__or__": "bitwise_or", "__xor__": "bitwise_xor"}


def name_of(node: Node) -> str:
    """Returns the name of aten's operator of a node; one that works in place has the same name."""
    name = str(node.target).split(".")[1] if "." in str(node.target) else str(node.target)
    return _OTHER_NAMES.get(name, name if name.startswith("__") else name.rstrip("_"))


Operation = Callable[["Writer", Node, Sequence[Any]], Number]
_OPERATIONS: dict[str, Operation] = {}
_HELPERS = """\
template <class Type>
__device__ Type floor_div(Type a, Type b) {
  const Type quotient = a / b;
  return quotient * b != a && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}
template <class Type>
__device__ Type floor_mod(Type a, Type b) {
  const Type rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
"""


def helpers_of(text: str) -> str:
    """Returns the helper functions that a text calls."""
    return _HELPERS if "floor_div<" in text or "floor_mod<" in text else ""


class Writer:
    """Writes the lines of one function from a graph.

    constant(node) returns a View of a get_attr node, or a Python number that it stands for;
    where(node) returns the user's line for messages.
    """

    def __init__(self, graph: Graph, parameters: Sequence[Number],
                 constant: Callable[[Node], View | int | float | bool],
                 where: Callable[[Node | None], str]) -> None:
        self.lines: list[str] = []
        self.constant, self.where = constant, where
        self.values: dict[Node, Any] = {}
        given = iter(parameters)
        for node in graph.nodes:
            if node.op == "placeholder":
                self.values[node] = next(given)
            elif node.op == "get_attr":
                found = constant(node)
                self.values[node] = found if isinstance(found, View) else literal(found)
            elif node.op == "call_function":
                self.values[node] = self._call(node)
            elif node.op == "output":
                self.result = node.args[0]

    def returned(self, kind: str) -> str:
        """Returns the text of the graph's result."""
        found = self.result[0] if isinstance(self.result, (tuple, list)) else self.result
        number = self.number(found) if isinstance(found, Node) else literal(found)
        return cast(number, kind)

    def refuse(self, node: Node, why: str) -> Unsupported:
        return Unsupported(f"{why}{self.where(node)}")

    def number(self, value: Any) -> Number:
        """Returns an operand as a number: what it is, or the only element of a capture."""
        if isinstance(value, Node):
            found = self.values[value]
            if isinstance(found, View):
                if found.shape:
                    raise self.refuse(value, f"a tensor of shape {list(found.shape)} is used as a "
                                      "number; a mod reads single elements of tensors")
                found = self.read(value, found)
                self.values[value] = found
            assert isinstance(found, Number)
            return found
        return literal(value)

    def read(self, node: Node, view: View) -> Number:
        text = f"captures.get<{view.capture}>({view.offset})"
        return self.named(node, text, kind_of(view.dtype))

    def named(self, node: Node, text: str, kind: str, natural: bool = False) -> Number:
        """Returns a number that a new line names."""
        name = f"t{len(self.lines)}"
        value = f"{text} != 0" if kind == "bool" and text.startswith("captures.") else text
        self.lines.append(f"  const {kind} {name} = {value};")
        return Number(name, kind, natural)

    def _call(self, node: Node) -> Any:
        target = node.target
        name = name_of(node)
        if name in ("index", "select"):
            found = self._chosen(node, name)
            if found is not None:
                return found
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.dim() == 0 and name in _OPERATIONS:
            arguments = [self._operand(each) for each in node.args]
            made = _OPERATIONS[name](self, node, arguments)
            return self.named(node, cast(made, kind_of(value.dtype)), kind_of(value.dtype),
                              made.natural)
        if name in _OPERATIONS:
            shape = list(getattr(value, "shape", ()))
            raise self.refuse(node, f"{target} makes a tensor of shape {shape}; a mod "
                              "computes single numbers, so prepare tensors outside of it")
        raise self.refuse(node, f"{target} has no text of the device; allowed are arithmetic, "
                          "comparisons, torch.where, elementary functions and reading captured "
                          "tensors by index")

    def _operand(self, value: Any) -> Any:
        if isinstance(value, Node) or isinstance(value, (bool, int, float)):
            return self.number(value)
        return value

    def _chosen(self, node: Node, name: str) -> Any:
        """Returns what indices leave of a capture; None if this is none."""
        view = self.values.get(node.args[0])  # type: ignore[arg-type]
        if not isinstance(view, View):
            return None
        indices: Any = node.args[1] if name == "index" else [node.args[2]]
        if any(each is None for each in indices) or (name == "select" and node.args[1] != 0):
            raise self.refuse(node, "a captured tensor is indexed behind its first dimensions; "
                              "allowed are indices of the leading ones")
        offset, shape = view.offset, view.shape
        for each in indices:
            number = self.number(each)
            if number.kind in ("bool", "float"):
                raise self.refuse(node, f"a captured tensor is indexed by a {number.kind}")
            text = number.text if number.natural else (
                f"({number.text} < 0 ? {number.text} + {shape[0]} : {number.text})")
            stride = math.prod(shape[1:])
            part = text if stride == 1 else f"{text} * {stride}LL"
            offset = part if offset == "0" else f"{offset} + {part}"
            shape = shape[1:]
        left = View(view.capture, offset, shape, view.dtype)
        return left if shape else self.read(node, left)


def operation(*names: str) -> Callable[[Operation], Operation]:
    """Registers how aten's operators of these names are written."""
    def register(function: Operation) -> Operation:
        for name in names:
            _OPERATIONS[name] = function
        return function
    return register
