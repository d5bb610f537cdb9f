// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Arithmetic of tiles, grids and sizes.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace lathe {

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Returns `value` rounded up to a multiple of `step`.
inline int round_up(int value, int step) { return (value + step - 1) / step * step; }

// a * b * ...; 2^56, which no grid and no workspace has, where the product passes that.
// Launches compute grids, so the loop over a few factors is written out where it is inlined.
inline int64_t bounded_product(std::initializer_list<int64_t> factors) {
  constexpr int64_t kMost = int64_t{1} << 56;
  int64_t product = 1;
#pragma GCC unroll 8
  for (const int64_t factor : factors) {
    if (factor == 0) return 0;
    if (__builtin_mul_overflow(product, factor, &product) || product > kMost) product = kMost;
  }
  return product;
}

// Returns a * b * ... modulo 2^64, for counts that are only reported.
inline uint64_t unsigned_product(std::initializer_list<int64_t> factors) {
  uint64_t product = 1;
  for (const int64_t factor : factors) product *= static_cast<uint64_t>(factor);
  return product;
}

}  // namespace lathe
