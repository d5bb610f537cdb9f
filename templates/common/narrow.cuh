// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The 8-bit float e4m3 (Micikevicius et al., FP8 Formats for Deep Learning, 2022): no infinity, a
// largest number of 448, and one code of each sign that is not a number. On every architecture, by
// way of float16, whose fields lie alike.
#pragma once
#include "common/math.cuh"
#include "common/types.cuh"

namespace lathe {

constexpr float kMostE4m3 = 448.0f;

// Two codes, in bytes 1 and 3 of a word, as float16 2^8 times as small.
__device__ __forceinline__ unsigned e4m3_halves(unsigned codes) {
  return (codes & 0x80008000u) | ((codes & 0x7f007f00u) >> 1);
}
// Four codes times `scale`, rounded once.
__device__ __forceinline__ void widen_e4m3(unsigned word, float scale, float (&value)[4]) {
  const unsigned even = e4m3_halves(((word << 8) & 0xff00u) | ((word << 16) & 0xff000000u));
  const unsigned odd = e4m3_halves(((word >> 8) & 0xff00u) | (word & 0xff000000u));
  unpack_pair(even, f16{}, value[0], value[1]);
  unpack_pair(odd, f16{}, value[2], value[3]);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const bool number = fabsf(value[i]) < 1.875f;
    value[i] = number ? value[i] * 256.0f * scale : bit_cast<float>(0x7fc00000u);
  }
}

// The code of the nearest number, ties to even; what is beyond the largest one becomes it.
__device__ __forceinline__ unsigned narrow_e4m3(float value) {
  const unsigned bits = bit_cast<unsigned>(value), sign = (bits >> 24) & 0x80u;
  const unsigned size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) return sign | 0x7fu;
  if (size >= bit_cast<unsigned>(kMostE4m3)) return sign | 0x7eu;
  // Below 2^-6 codes are multiples of 2^-9; adding 2^14 rounds to those.
  constexpr float kShift = 16384.0f;
  if (size < 0x3c800000u) {
    return sign | (bit_cast<unsigned>(__fadd_rn(bit_cast<float>(size), kShift)) -
                   bit_cast<unsigned>(kShift));
  }
  // Three bits of the fraction stay; a carry adds one to the exponent. The bias 127 becomes 7.
  const unsigned rounded = size + 0x7ffffu + ((size >> 20) & 1u);
  return sign | ((rounded >> 20) - (120u << 3));
}

}  // namespace lathe
