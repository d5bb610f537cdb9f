// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Eight-bit floats (f8_e4m3): 1 bit of sign, 4 of exponent, 3 of fraction, 448 the largest number.
//
//   const long long i = 8 * (64LL * blockIdx.x + threadIdx.x);
//   if (i >= p.N) return;  // N is a multiple of 8
//   float value[8];        // 4, 8 or 16 of them
//   lathe::load_e4m3(p.x + i, p.scale, value);   // codes, times the scale
//   for (float& each : value) each *= each / lathe::kMostE4m3;
//   lathe::store_e4m3(p.y + i, value);           // numbers that are divided by their scale already
#pragma once

#include "common/narrow.cuh"

namespace lathe {

// Rounds each value to nearest even; what is larger than 448 becomes 448, no number stays none.
template <int kCount>
__device__ __forceinline__ void store_e4m3(unsigned char* to, const float (&value)[kCount]) {
  static_assert(kCount == 4 || kCount == 8 || kCount == 16, "whole words of one access");
  Words<kCount> raw;
#pragma unroll
  for (int i = 0; i < kCount / 4; ++i) {
    raw.word[i] = narrow_e4m3(value[4 * i]) | narrow_e4m3(value[4 * i + 1]) << 8 |
                  narrow_e4m3(value[4 * i + 2]) << 16 | narrow_e4m3(value[4 * i + 3]) << 24;
  }
  store_global(to, raw);
}

// Widens codes that no thread of the grid writes, times a scale.
template <int kCount>
__device__ __forceinline__ void load_e4m3(const unsigned char* from, float scale,
                                          float (&value)[kCount]) {
  static_assert(kCount == 4 || kCount == 8 || kCount == 16, "whole words of one access");
  Words<kCount> raw;
  load_global(from, raw);
#pragma unroll
  for (int i = 0; i < kCount / 4; ++i) {
    float four[4];
    widen_e4m3(raw.word[i], scale, four);
#pragma unroll
    for (int j = 0; j < 4; ++j) value[4 * i + j] = four[j];
  }
}

}  // namespace lathe
