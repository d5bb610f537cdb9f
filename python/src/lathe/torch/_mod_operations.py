# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""How aten's operators on single numbers are written as device text."""
from __future__ import annotations

from typing import Any, Sequence

from torch.fx import Node

from lathe.torch._mod_text import Number, Writer, cast, kind_of, literal, name_of, operation

_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_FUNCTIONS = {"exp": "expf", "exp2": "exp2f", "expm1": "expm1f", "log": "logf", "log2": "log2f",
              "log1p": "log1pf", "log10": "log10f", "tanh": "tanhf", "sqrt": "sqrtf",
              "rsqrt": "rsqrtf", "sin": "sinf", "cos": "cosf", "tan": "tanf", "atan": "atanf",
              "sinh": "sinhf", "cosh": "coshf", "erf": "erff"}
_ROUNDINGS = {"floor": "floorf", "ceil": "ceilf", "trunc": "truncf", "round": "rintf"}


def _kind(node: Node) -> str:
    return kind_of(node.meta["val"].dtype)


def _widest(*numbers: Number) -> str:
    order = ["bool", "int", "long long", "float"]
    return max((each.kind for each in numbers), key=order.index)


@operation("add", "sub", "rsub")
def _sum(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    a, b = given[:2]
    kind, alpha = _kind(node), node.kwargs.get("alpha", given[2].text if len(given) > 2 else 1)
    if alpha != 1:
        factor = cast(writer.number(alpha), kind)
        b = Number(f"({factor} * {cast(b, kind)})", kind)
    if name_of(node) == "rsub":
        a, b = b, a
    sign = "+" if name_of(node) == "add" else "-"
    natural = sign == "+" and a.natural and b.natural
    return Number(f"({cast(a, kind)} {sign} {cast(b, kind)})", kind, natural)


@operation("mul")
def _product(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    a, b = given
    kind = _kind(node)
    if kind == "bool":
        return Number(f"({a.text} && {b.text})", kind, True)
    return Number(f"({cast(a, kind)} * {cast(b, kind)})", kind, a.natural and b.natural)


def _floor_quotient(a: Number, b: Number, kind: str) -> Number:
    x, y = cast(a, kind), cast(b, kind)
    if kind == "float":
        return Number(f"floorf({x} / {y})", kind)
    plain = a.natural and b.natural
    return Number(f"({x} / {y})" if plain else f"floor_div<{kind}>({x}, {y})", kind, plain)


@operation("div", "true_divide")
def _quotient(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    kind, mode = _kind(node), node.kwargs.get("rounding_mode")
    if mode == "floor":
        return _floor_quotient(given[0], given[1], kind)
    x, y = cast(given[0], kind), cast(given[1], kind)
    if mode == "trunc" and kind == "float":
        return Number(f"truncf({x} / {y})", kind)
    return Number(f"({x} / {y})", kind)


@operation("floor_divide")
def _floor_divide(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    return _floor_quotient(given[0], given[1], _kind(node))


@operation("remainder")
def _remainder(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    (a, b), kind = given, _kind(node)
    x, y = cast(a, kind), cast(b, kind)
    if kind == "float":
        return Number(f"({x} - {y} * floorf({x} / {y}))", kind)
    plain = a.natural and b.natural
    return Number(f"({x} % {y})" if plain else f"floor_mod<{kind}>({x}, {y})", kind, b.natural)


@operation("fmod")
def _fmod(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    kind = _kind(node)
    x, y = cast(given[0], kind), cast(given[1], kind)
    return Number(f"fmodf({x}, {y})" if kind == "float" else f"({x} % {y})", kind, given[0].natural)


@operation("pow")
def _power(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    (a, b), kind = given, _kind(node)
    x = cast(a, kind)
    if b.text in ("2", "2.0f"):
        return Number(f"({x} * {x})", kind, kind != "float" and a.natural)
    if kind != "float":
        raise writer.refuse(node, f"{node.target} of ints; allowed are the power 2, and floats")
    return Number(f"powf({x}, {cast(b, kind)})", kind)


@operation("neg", "abs", "sign", "sgn", "relu", "reciprocal", "square", "sigmoid", *_FUNCTIONS,
           *_ROUNDINGS)
def _unary(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    name, kind = name_of(node), _kind(node)
    if len(given) > 1 or node.kwargs:
        raise writer.refuse(node, f"{node.target} with more than a number")
    x = cast(given[0], kind)
    if name in _FUNCTIONS:
        return Number(f"{_FUNCTIONS[name]}({x})", kind)
    if name in _ROUNDINGS:
        return Number(f"{_ROUNDINGS[name]}({x})" if kind == "float" else x, kind)
    texts = {"neg": f"(-{x})", "abs": f"({x} < 0 ? -{x} : {x})", "relu": f"({x} > 0 ? {x} : 0)",
             "sign": f"({kind})(({x} > 0) - ({x} < 0))", "reciprocal": f"(1.0f / {x})",
             "square": f"({x} * {x})", "sigmoid": f"(1.0f / (1.0f + expf(-{x})))"}
    return Number(texts["sign" if name == "sgn" else name], kind, name in ("abs", "relu"))


@operation("minimum", "maximum", "clamp", "clamp_min", "clamp_max")
def _bounded(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    name, kind = name_of(node), _kind(node)
    low = high = None
    if name in ("maximum", "clamp_min"):
        low = given[1]
    elif name in ("minimum", "clamp_max"):
        high = given[1]
    else:
        low = given[1] if len(given) > 1 else node.kwargs.get("min")
        high = given[2] if len(given) > 2 else node.kwargs.get("max")
    found: Number = given[0]
    for bound, sign in ((low, "<"), (high, ">")):
        if bound is not None:
            bound = bound if isinstance(bound, Number) else writer.number(bound)
            x, y = cast(found, kind), cast(bound, kind)
            natural = (found.natural or bound.natural) if sign == "<" else (
                found.natural and bound.natural)
            # Written so that it keeps NaN, as torch does.
            found = Number(f"({x} {sign} {y} ? {y} : {x})", kind, natural)
    return found


@operation("where")
def _where(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    condition, a, b = given
    kind = _kind(node)
    return Number(f"({cast(condition, 'bool')} ? {cast(a, kind)} : {cast(b, kind)})", kind,
                  a.natural and b.natural)


@operation("masked_fill")
def _masked_fill(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    x, mask, value = given
    kind = _kind(node)
    return Number(f"({cast(mask, 'bool')} ? {cast(value, kind)} : {cast(x, kind)})", kind)


@operation(*_COMPARISONS)
def _comparison(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    kind = _widest(*given)
    a, b = cast(given[0], kind), cast(given[1], kind)
    return Number(f"({a} {_COMPARISONS[name_of(node)]} {b})", "bool", True)


@operation("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift")
def _bitwise(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    sign = {"and": "&", "or": "|", "xor": "^", "left_shift": "<<", "right_shift": ">>"}[
        name_of(node).partition("_")[2]]
    kind = _kind(node)
    return Number(f"({cast(given[0], kind)} {sign} {cast(given[1], kind)})", kind,
                  given[0].natural and given[1].natural and sign != "<<")


@operation("logical_and", "logical_or", "logical_xor")
def _logical(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    sign = {"and": "&&", "or": "||", "xor": "!="}[name_of(node).partition("_")[2]]
    return Number(f"({cast(given[0], 'bool')} {sign} {cast(given[1], 'bool')})", "bool", True)


@operation("logical_not", "bitwise_not")
def _not(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    kind = _kind(node)
    return Number(f"(!{cast(given[0], 'bool')})" if kind == "bool" else f"(~{given[0].text})", kind)


@operation("scalar_tensor")
def _scalar_tensor(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    return Number(given[0].text, given[0].kind, given[0].natural)


@operation("full", "full_like", "new_full")
def _full(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    found = given[2 if name_of(node) == "new_full" else 1]
    return Number(found.text, found.kind, found.natural)


@operation("ones", "zeros", "new_ones", "new_zeros", "ones_like", "zeros_like")
def _constant(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    return literal(1 if "ones" in name_of(node) else 0)


@operation("_to_copy", "detach", "alias", "clone", "lift_fresh", "lift_fresh_copy", "view",
           "_unsafe_view", "reshape", "expand", "sum", "squeeze")
def _same(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    found = given[0]
    natural = found.natural and found.kind != "float"
    return Number(found.text, found.kind, natural)


@operation("tanh_backward", "sigmoid_backward", "threshold_backward")
def _backward(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    name = name_of(node)
    grad, x = cast(given[0], "float"), cast(given[1], "float")
    if name == "tanh_backward":
        return Number(f"({grad} * (1.0f - {x} * {x}))", "float")
    if name == "sigmoid_backward":
        return Number(f"({grad} * {x} * (1.0f - {x}))", "float")
    return Number(f"({x} > {cast(given[2], 'float')} ? {grad} : 0.0f)", "float")
