# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""How aten's operators on single numbers are written as device text.

Ints are those of torch: sums and products wrap at the ends of their dtype, quotients and rests are
Python's (_mod_helpers.py). What a text may leave out because a number cannot be negative or zero,
it leaves out by the range of that number, which no wrap can leave.
"""
from __future__ import annotations

from typing import Any, Sequence

import torch

from lathe.torch._mod_text import Writer, operation
from lathe.torch._mod_traced import Constant, Node
from lathe.torch._mod_types import (BITS, BOOL, FLOAT, Number, c_type, cast, common_dtype,
                                    is_float, number_of, range_of, rounded)

_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
# Functions of float; those of double have the names without the last letter.
_FUNCTIONS = {"exp": "expf", "exp2": "exp2f", "expm1": "expm1f", "log": "logf", "log2": "log2f",
              "log1p": "log1pf", "log10": "log10f", "tanh": "tanhf", "sqrt": "sqrtf",
              "rsqrt": "rsqrtf", "sin": "sinf", "cos": "cosf", "tan": "tanf", "atan": "atanf",
              "asin": "asinf", "acos": "acosf", "sinh": "sinhf", "cosh": "coshf", "erf": "erff"}
_ROUNDINGS = {"floor": "floorf", "ceil": "ceilf", "trunc": "truncf", "round": "rintf"}


def float_number(text: str, dtype: torch.dtype) -> Number:
    """Returns a number that was computed in float or double."""
    return Number(rounded(text, dtype), dtype)


def function_of(name: str, dtype: torch.dtype) -> str:
    """Returns the compiler's function of float `name`, for a dtype."""
    return name.removesuffix("f") if dtype == torch.float64 else name


def _wrapped(a: str, sign: str, b: str, dtype: torch.dtype, low: int, high: int) -> Number:
    """Returns a sum or product of ints that lies between `low` and `high`, unless it wraps."""
    least, most = range_of(dtype)
    kind = c_type(dtype)
    if BITS[dtype] < 32:  # C computes in int, which holds it
        return number_of(f"(({kind})({a} {sign} {b}))", dtype, low, high)
    if least <= low and high <= most:
        return number_of(f"({a} {sign} {b})", dtype, low, high)
    # In C an overflow of signed numbers has no meaning.
    return number_of(f"(({kind})((unsigned {kind}){a} {sign} (unsigned {kind}){b}))", dtype)


def ends(a: Number, b: Number, dtype: torch.dtype) -> tuple[int, int, int, int]:
    """Returns between what two ints lie once they have been cast to a dtype."""
    found: list[int] = []
    least, most = range_of(dtype)
    for each in (a, b):
        inside = not is_float(each.dtype) and least <= each.low and each.high <= most
        found += (each.low, each.high) if inside else (least, most)
    return found[0], found[1], found[2], found[3]


def product(a: Number, b: Number, dtype: torch.dtype) -> Number:
    x, y = cast(a, dtype), cast(b, dtype)
    if dtype == BOOL:
        return Number(f"({x} && {y})", BOOL)
    if is_float(dtype):
        return float_number(f"({x} * {y})", dtype)
    p, q, r, s = ends(a, b, dtype)
    found = (p * r, p * s, q * r, q * s)
    return _wrapped(x, "*", y, dtype, min(found), max(found))


def _sum_of(a: Number, sign: str, b: Number, dtype: torch.dtype) -> Number:
    x, y = cast(a, dtype), cast(b, dtype)
    if dtype == BOOL:
        return Number(f"({x} || {y})", BOOL)
    if is_float(dtype):
        return float_number(f"({x} {sign} {y})", dtype)
    p, q, r, s = ends(a, b, dtype)
    return _wrapped(x, sign, y, dtype, *((p + r, q + s) if sign == "+" else (p - s, q - r)))


@operation("add", "sub", "rsub")
def _sum(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    a, b = given[:2]
    alpha = node.kwargs.get("alpha", given[2] if len(given) > 2 else 1)
    alpha = alpha.value if isinstance(alpha, Number) else alpha
    if isinstance(alpha, Constant) or alpha is None:
        raise writer.refuse(node, f"{node.target} with an alpha that varies; multiply instead")
    if alpha != 1:
        b = product(writer.number(alpha), b, node.dtype)
    if node.name == "rsub":
        a, b = b, a
    return _sum_of(a, "+" if node.name == "add" else "-", b, node.dtype)


@operation("mul")
def _multiplied(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    return product(given[0], given[1], node.dtype)


@operation("neg")
def _negative(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    x, dtype = given[0], node.dtype
    if is_float(dtype):
        return Number(f"(-{cast(x, dtype)})", dtype)
    return _sum_of(Number("0", dtype, 0, 0, 0), "-", x, dtype)


@operation("abs")
def _absolute(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    x, dtype = given[0], node.dtype
    if is_float(dtype):
        return Number(f"{function_of('fabsf', dtype)}({cast(x, dtype)})", dtype)
    if x.natural or dtype == BOOL:
        return number_of(cast(x, dtype), dtype, x.low, x.high)
    negative = _sum_of(Number("0", dtype, 0, 0, 0), "-", x, dtype).text
    most = max(abs(x.low), abs(x.high))  # the least int has no absolute value: it wraps to itself
    return number_of(f"({x.text} < 0 ? {negative} : {x.text})", dtype, 0, most)


@operation("sign", "sgn", "relu", "reciprocal", "square", "sigmoid", *_FUNCTIONS, *_ROUNDINGS)
def _unary(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    name, dtype = node.name, node.dtype
    if len(given) > 1 or node.kwargs:
        raise writer.refuse(node, f"{node.target} with more than a number")
    x = cast(given[0], dtype)
    if name in _FUNCTIONS:
        return float_number(f"{function_of(_FUNCTIONS[name], dtype)}({x})", dtype)
    if name in _ROUNDINGS:
        if not is_float(dtype):
            return number_of(x, dtype, given[0].low, given[0].high)
        return Number(f"{function_of(_ROUNDINGS[name], dtype)}({x})", dtype)
    if name == "square":
        return product(given[0], given[0], dtype)
    if name in ("sign", "sgn"):
        return number_of(f"(({c_type(dtype)})(({x} > 0) - ({x} < 0)))", dtype, -1, 1)
    if name == "relu":  # NaN stays
        return number_of(f"({x} < 0 ? ({c_type(dtype)})0 : {x})", dtype, 0, range_of(dtype)[1])
    one, exp = ("1.0", "exp") if dtype == torch.float64 else ("1.0f", "expf")
    below = x if name == "reciprocal" else f"({one} + {exp}(-{x}))"
    return float_number(f"({one} / {below})", dtype)


def _bound(found: Number, bound: Number, sign: str, dtype: torch.dtype) -> Number:
    """Returns the greater (`<`) or the lesser (`>`) of two numbers; NaN if either is."""
    x, y = cast(found, dtype), cast(bound, dtype)
    if is_float(dtype):
        return Number(f"({x} {sign} {y} || {y} != {y} ? {y} : {x})", dtype)
    p, q, r, s = ends(found, bound, dtype)
    take = max if sign == "<" else min
    return number_of(f"({x} {sign} {y} ? {y} : {x})", dtype, take(p, r), take(q, s))


@operation("minimum", "maximum", "clamp", "clamp_min", "clamp_max")
def _bounded(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    low = high = None
    if node.name in ("maximum", "clamp_min"):
        low = given[1]
    elif node.name in ("minimum", "clamp_max"):
        high = given[1]
    else:
        low = given[1] if len(given) > 1 else node.kwargs.get("min")
        high = given[2] if len(given) > 2 else node.kwargs.get("max")
    found: Number = given[0]
    for bound, sign in ((low, "<"), (high, ">")):
        if bound is not None:
            bound = bound if isinstance(bound, Number) else writer.number(bound)
            found = _bound(found, bound, sign, node.dtype)
    return found


@operation("fmin", "fmax")
def _bounded_number(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    dtype, sign = node.dtype, "<" if node.name == "fmax" else ">"
    if not is_float(dtype):
        return _bound(given[0], given[1], sign, dtype)
    x, y = cast(given[0], dtype), cast(given[1], dtype)
    return Number(f"({x} {sign} {y} || {x} != {x} ? {y} : {x})", dtype)


def _either(condition: Number, a: Number, b: Number, dtype: torch.dtype) -> Number:
    text = f"({cast(condition, BOOL)} ? {cast(a, dtype)} : {cast(b, dtype)})"
    if is_float(dtype):
        return Number(text, dtype)
    p, q, r, s = ends(a, b, dtype)
    return number_of(text, dtype, min(p, r), max(q, s))


@operation("where")
def _where(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    return _either(given[0], given[1], given[2], node.dtype)


@operation("masked_fill")
def _masked_fill(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    return _either(given[1], given[2], given[0], node.dtype)


@operation(*_COMPARISONS)
def _comparison(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    dtype = common_dtype(given[0], given[1])
    a, b = cast(given[0], dtype), cast(given[1], dtype)
    return Number(f"({a} {_COMPARISONS[node.name]} {b})", BOOL)


@operation("isnan", "isinf", "isfinite")
def _is_special(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    if not is_float(given[0].dtype):
        return Number("true" if node.name == "isfinite" else "false", BOOL)
    x = given[0].text
    return Number({"isnan": f"({x} != {x})", "isfinite": f"({x} - {x} == 0)",
                   "isinf": f"({x} == {x} && {x} - {x} != 0)"}[node.name], BOOL)


@operation("bitwise_and", "bitwise_or", "bitwise_xor")
def _bitwise(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    sign, dtype = {"and": "&", "or": "|", "xor": "^"}[node.name.partition("_")[2]], node.dtype
    text = f"(({c_type(dtype)})({cast(given[0], dtype)} {sign} {cast(given[1], dtype)}))"
    if dtype == BOOL:
        return Number(text, dtype)
    p, q, r, s = ends(given[0], given[1], dtype)
    if p >= 0 and r >= 0:  # no bit above those of the greater one
        return number_of(text, dtype, 0, min(q, s) if sign == "&" else
                         (1 << max(q, s).bit_length()) - 1)
    if sign == "&" and (p >= 0 or r >= 0):
        return number_of(text, dtype, 0, q if p >= 0 else s)
    return number_of(text, dtype)


@operation("logical_and", "logical_or", "logical_xor")
def _logical(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    sign = {"and": "&&", "or": "||", "xor": "!="}[node.name.partition("_")[2]]
    return Number(f"({cast(given[0], BOOL)} {sign} {cast(given[1], BOOL)})", BOOL)


@operation("logical_not", "bitwise_not")
def _not(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    if node.dtype == BOOL:
        return Number(f"(!{cast(given[0], BOOL)})", BOOL)
    kind, x = c_type(node.dtype), given[0]
    if node.dtype == torch.uint8:
        return number_of(f"(({kind})~{x.text})", node.dtype)
    return number_of(f"(({kind})~{x.text})", node.dtype, ~x.high, ~x.low)


@operation("scalar_tensor", "full", "full_like", "new_full")
def _full(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    found = given[{"scalar_tensor": 0, "new_full": 2}.get(node.name, 1)]
    assert isinstance(found, Number)
    return found


@operation("ones", "zeros", "new_ones", "new_zeros", "ones_like", "zeros_like")
def _constant(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    return writer.number(1 if "ones" in node.name else 0)


@operation("_to_copy", "detach", "alias", "clone", "lift_fresh", "lift_fresh_copy", "view",
           "_unsafe_view", "reshape", "expand", "sum", "squeeze", "copy")
def _same(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    found = given[1] if node.name == "copy" else given[0]
    assert isinstance(found, Number)
    return found


@operation("tanh_backward", "sigmoid_backward", "threshold_backward")
def _backward(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    dtype = node.dtype
    grad, x = cast(given[0], dtype), cast(given[1], dtype)
    if node.name == "tanh_backward":
        return float_number(f"({grad} * (1 - {x} * {x}))", dtype)
    if node.name == "sigmoid_backward":
        return float_number(f"({grad} * {x} * (1 - {x}))", dtype)
    return Number(f"({x} <= {cast(given[2], dtype)} ? 0 : {grad})", dtype if is_float(dtype)
                  else FLOAT)
