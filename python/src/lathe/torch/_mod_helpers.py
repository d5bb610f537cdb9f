# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Functions of the device that texts of mods call where C and torch differ."""
from __future__ import annotations

import re

# A division of ints by 0 raises an error in torch on a CPU and gives any number on a GPU; here it
# gives 0, so that the side of a torch.where that is not taken does no harm. The quotient by -1
# wraps, since the least int has no opposite.
_HELPERS = {
    "trunc_div": """\
template <class Type>
__device__ Type trunc_div(Type a, Type b) {
  if (b == 0) return 0;
  return b == (Type)-1 && (Type)-1 < 0 ? (Type)(0ull - (unsigned long long)a) : (Type)(a / b);
}
""",
    "trunc_mod": """\
template <class Type>
__device__ Type trunc_mod(Type a, Type b) {
  return b == 0 || (b == (Type)-1 && (Type)-1 < 0) ? (Type)0 : (Type)(a % b);
}
""",
    "floor_div": """\
template <class Type>
__device__ Type floor_div(Type a, Type b) {
  const Type quotient = trunc_div<Type>(a, b);
  return trunc_mod<Type>(a, b) != 0 && (a < 0) != (b < 0) ? (Type)(quotient - 1) : quotient;
}
""",
    "floor_mod": """\
template <class Type>
__device__ Type floor_mod(Type a, Type b) {
  const Type rest = trunc_mod<Type>(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? (Type)(rest + b) : rest;
}
""",
    "int_power": """\
template <class Type>
__device__ Type int_power(Type a, Type b) {
  if (b < 0) return a == 1 ? (Type)1 : a == (Type)-1 ? (Type)(b % 2 != 0 ? -1 : 1) : (Type)0;
  unsigned long long power = 1, factor = (unsigned long long)a;
  for (; b != 0; b = (Type)(b >> 1)) {
    if (b & 1) power *= factor;
    factor *= factor;
  }
  return (Type)power;
}
""",
    # A count below 0 or from the width on shifts all bits out.
    "shift_left": """\
template <class Type, int kBits>
__device__ Type shift_left(Type a, Type b) {
  return b < 0 || b >= kBits ? (Type)0 : (Type)((unsigned long long)a << (int)b);
}
""",
    "shift_right": """\
template <class Type, int kBits>
__device__ Type shift_right(Type a, Type b) {
  constexpr int kMost = (Type)-1 < 0 ? kBits - 1 : kBits;
  if (b >= 0 && b < kMost) return (Type)(a >> (int)b);
  return (Type)-1 < 0 && a < 0 ? (Type)-1 : (Type)0;
}
""",
    "exact_rest": """\
__device__ inline float exact_rest(float a, float b) { return fmodf(a, b); }
__device__ inline double exact_rest(double a, double b) { return fmod(a, b); }
""",
    "floor_rest": """\
template <class Type>
__device__ Type floor_rest(Type a, Type b) {
  const Type rest = exact_rest(a, b);
  return rest != 0 && (b < 0) != (rest < 0) ? rest + b : rest;
}
""",
    # Python's quotient of floats: that of a without its rest, which is whole but for rounding.
    "floor_quotient": """\
template <class Type>
__device__ Type floor_quotient(Type a, Type b) {
  if (b == 0) return a / b;
  const Type rest = exact_rest(a, b);
  Type quotient = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
  if (quotient == 0) return 0;
  const Type whole = (Type)floor((double)quotient);
  return quotient - whole > (Type)0.5 ? whole + 1 : whole;
}
""",
    # The sum with a power of two that is 2^13 times the number's has the last bit of an f16.
    "round_f16": """\
__device__ inline float round_f16(float x) {
  const float size = fabsf(x);
  if (!(size < 65520.0f)) return x != x ? x : copysignf(-minus_infinity(), x);
  const unsigned power = __float_as_uint(size) & 0x7f800000u;
  const float large = __uint_as_float((power > 0x38800000u ? power : 0x38800000u) + (13u << 23));
  return copysignf(__fsub_rn(__fadd_rn(size, large), large), x);
}
""",
    "round_bf16": """\
__device__ inline float round_bf16(float x) {
  if (x != x) return x;
  const unsigned bits = __float_as_uint(x);
  return __uint_as_float((bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u);
}
""",
}


def helpers_of(text: str) -> str:
    """Returns the functions that a text calls, and those that they call, in order."""
    needed: set[str] = set()
    left = [text]
    while left:
        words = set(re.findall(r"\w+", left.pop())) & set(_HELPERS) - needed
        needed |= words
        left += [_HELPERS[word] for word in words]
    return "".join(source for name, source in _HELPERS.items() if name in needed)
