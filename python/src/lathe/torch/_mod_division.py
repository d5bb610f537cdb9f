# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""How aten's quotients, rests, powers and shifts of single numbers are written as device text."""
from __future__ import annotations

from typing import Any, Sequence

import torch

from lathe.torch._mod_operations import ends, float_number, function_of, product
from lathe.torch._mod_text import Writer, operation
from lathe.torch._mod_traced import Node
from lathe.torch._mod_types import BITS, Number, c_type, cast, is_float, number_of


def _int_quotient(helper: str, sign: str, a: Number, b: Number, dtype: torch.dtype) -> Number:
    """Returns a quotient or a rest of ints: of two natural numbers C's own is right."""
    x, y = cast(a, dtype), cast(b, dtype)
    p, q, r, s = ends(a, b, dtype)
    if p >= 0 and r > 0:
        low, high = (p // s, q // r) if sign == "/" else (0, min(q, s - 1))
        return number_of(f"(({c_type(dtype)})({x} {sign} {y}))", dtype, low, high)
    text = f"(({c_type(dtype)}){helper}<{c_type(dtype)}>({x}, {y}))"
    if helper == "floor_mod" and r > 0:
        return number_of(text, dtype, 0, s - 1)
    return number_of(text, dtype)


def _floor_quotient(a: Number, b: Number, dtype: torch.dtype) -> Number:
    if is_float(dtype):
        kind = c_type(dtype)
        return float_number(f"floor_quotient<{kind}>({cast(a, dtype)}, {cast(b, dtype)})", dtype)
    return _int_quotient("floor_div", "/", a, b, dtype)


@operation("div", "true_divide")
def _quotient(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    dtype, mode = node.dtype, node.kwargs.get("rounding_mode")
    if mode == "floor":
        return _floor_quotient(given[0], given[1], dtype)
    if not is_float(dtype):
        return _int_quotient("trunc_div", "/", given[0], given[1], dtype)
    found = float_number(f"({cast(given[0], dtype)} / {cast(given[1], dtype)})", dtype)
    if mode == "trunc":
        return Number(f"{function_of('truncf', dtype)}({found.text})", dtype)
    return found


@operation("floor_divide")
def _floor_divide(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    return _floor_quotient(given[0], given[1], node.dtype)


@operation("remainder")
def _remainder(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    dtype = node.dtype
    if not is_float(dtype):
        return _int_quotient("floor_mod", "%", given[0], given[1], dtype)
    x, y = cast(given[0], dtype), cast(given[1], dtype)
    return float_number(f"floor_rest<{c_type(dtype)}>({x}, {y})", dtype)


@operation("fmod")
def _fmod(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    dtype = node.dtype
    if not is_float(dtype):
        return _int_quotient("trunc_mod", "%", given[0], given[1], dtype)
    x, y = cast(given[0], dtype), cast(given[1], dtype)
    return float_number(f"{function_of('fmodf', dtype)}({x}, {y})", dtype)


@operation("pow")
def _power(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    (a, b), dtype = given, node.dtype
    x = cast(a, dtype)
    if not is_float(dtype):
        if b.value == 2:
            return product(a, a, dtype)
        kind = c_type(dtype)
        return number_of(f"(({kind})int_power<{kind}>({x}, {cast(b, dtype)}))", dtype)
    simple = {2: f"({x} * {x})", 3: f"({x} * {x} * {x})", 1: x, 0.5: f"sqrtf({x})",
              -1: f"(1.0f / {x})", -2: f"(1.0f / ({x} * {x}))", -0.5: f"(1.0f / sqrtf({x}))"}
    if b.value in simple and not isinstance(b.value, bool) and dtype != torch.float64:
        return float_number(simple[b.value], dtype)
    return float_number(f"{function_of('powf', dtype)}({x}, {cast(b, dtype)})", dtype)


@operation("bitwise_left_shift", "bitwise_right_shift")
def _shift(writer: Writer, node: Node, given: Sequence[Any]) -> Number:
    (a, b), dtype = given, node.dtype
    helper = "shift_left" if node.name == "bitwise_left_shift" else "shift_right"
    text = f"{helper}<{c_type(dtype)}, {BITS[dtype]}>({cast(a, dtype)}, {cast(b, dtype)})"
    p, q, _, _ = ends(a, b, dtype)
    if helper == "shift_right" and p >= 0:
        return number_of(text, dtype, 0, q)
    return number_of(text, dtype)
