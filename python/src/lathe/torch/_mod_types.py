# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Numbers in the device text of mods: their types, what they can be, and casts between them."""
from __future__ import annotations

import ctypes
import math
from typing import Any, NamedTuple

import torch

from lathe._errors import Unsupported

# Numbers of 16 bit are computed in float and rounded after each operator, as torch does it.
C_TYPES = {torch.bool: "bool", torch.uint8: "unsigned char", torch.int8: "signed char",
           torch.int16: "short", torch.int32: "int", torch.int64: "long long",
           torch.float16: "float", torch.bfloat16: "float", torch.float32: "float",
           torch.float64: "double"}
BITS = {torch.uint8: 8, torch.int8: 8, torch.int16: 16, torch.int32: 32, torch.int64: 64}
INT, FLOAT, BOOL = torch.int32, torch.float32, torch.bool


class Number(NamedTuple):
    """A text of one number of a dtype; an int lies between `low` and `high`.

    value: the Python number that it is a literal of. scalar: it is a Python number, whose dtype
    counts less than that of a tensor.
    """

    text: str
    dtype: torch.dtype
    low: int = 0
    high: int = 0
    value: int | float | bool | None = None
    scalar: bool = False

    @property
    def natural(self) -> bool:
        """Whether it cannot be negative."""
        return self.dtype in BITS and self.low >= 0


def c_type(dtype: torch.dtype) -> str:
    """Returns the C type of numbers of a dtype."""
    found = C_TYPES.get(dtype)
    if found is None:
        raise Unsupported(f"a mod has a number of dtype {dtype}; allowed are "
                          f"{', '.join(str(each).removeprefix('torch.') for each in C_TYPES)}")
    return found


def is_float(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point


def range_of(dtype: torch.dtype) -> tuple[int, int]:
    """Returns the least and the greatest int of a dtype."""
    if dtype not in BITS:
        return (0, 1)
    if dtype == torch.uint8:
        return (0, 255)
    half = 1 << (BITS[dtype] - 1)
    return (-half, half - 1)


def number_of(text: str, dtype: torch.dtype, low: int | None = None, high: int | None = None
              ) -> Number:
    """Returns a number of a dtype that lies between `low` and `high`, as far as that is known."""
    least, most = range_of(dtype)
    if low is None or high is None or low < least or high > most:
        low, high = least, most
    return Number(text, dtype, low, high)


def literal(value: int | float | bool) -> Number:
    """Returns a Python number as a text of the device."""
    if isinstance(value, bool):
        return Number("true" if value else "false", BOOL, int(value), int(value), value, True)
    if isinstance(value, int):
        dtype = torch.int32 if -2**31 <= value < 2**31 else torch.int64
        return Number(_int_text(value, dtype), dtype, value, value, value, True)
    return Number(_float_text(value, torch.float32), FLOAT, 0, 0, value, True)


def _int_text(value: int, dtype: torch.dtype) -> str:
    """Returns an int as C has it, where the least one of a type has no literal."""
    end = "LL" if dtype == torch.int64 else ""
    text = f"{value}{end}" if value > -2**31 else f"({value + 1}{end} - 1)"
    return text if value >= 0 or text[0] == "(" else f"({text})"


def _float_text(value: float, dtype: torch.dtype) -> str:
    if math.isnan(value):
        return "(minus_infinity() - minus_infinity())"
    if dtype != torch.float64:
        value = ctypes.c_float(value).value  # rounded once, from the number that Python has
    if math.isinf(value):
        return "minus_infinity()" if value < 0 else "(-minus_infinity())"
    text = f"{value!r}{'' if dtype == torch.float64 else 'f'}"
    return f"({text})" if text[0] == "-" else text


def rounded(text: str, dtype: torch.dtype) -> str:
    """Returns a text of float rounded to a dtype of 16 bit; others as they are."""
    if dtype == torch.float16:
        return f"round_f16({text})"
    return f"round_bf16({text})" if dtype == torch.bfloat16 else text


def cast(number: Number, dtype: torch.dtype) -> str:
    """Returns the text of a number in another dtype, converted as torch does it."""
    if number.dtype == dtype:
        return number.text
    if number.value is not None:
        return _cast_literal(number.value, dtype)
    kind, text = c_type(dtype), number.text
    if dtype == BOOL:
        return f"({text} != 0)"
    if is_float(dtype):
        narrow = dtype in (torch.float16, torch.bfloat16)
        source = number.dtype
        if source in (torch.float16, torch.bfloat16) and kind == "float":
            return rounded(text, dtype) if narrow else text
        return rounded(f"((float){text})", dtype) if narrow else f"(({kind}){text})"
    if is_float(number.dtype) and dtype != torch.int64:
        return f"(({kind})(long long){text})" if dtype != INT else f"((int){text})"
    return f"(({kind}){text})"


def _cast_literal(value: int | float | bool, dtype: torch.dtype) -> str:
    if dtype == BOOL:
        return "true" if value else "false"
    if is_float(dtype):
        return _float_text(float(value), dtype)
    if isinstance(value, float):
        raise Unsupported(f"a mod makes the number {value} an int ({dtype}); give it an int")
    low, high = range_of(dtype)
    value = (value - low) % (high - low + 1) + low  # torch lets it wrap
    return f"(({c_type(dtype)}){_int_text(int(value), dtype)})" if dtype not in (
        torch.int32, torch.int64) else _int_text(int(value), dtype)


def common_dtype(a: Number, b: Number) -> torch.dtype:
    """Returns the dtype in which torch compares two numbers."""
    return torch.result_type(_sample(a), _sample(b))


def _sample(number: Number) -> Any:
    if number.scalar:
        kind = bool if number.dtype == BOOL else float if is_float(number.dtype) else int
        return kind(1)
    return torch.empty((), dtype=number.dtype, device="meta")
