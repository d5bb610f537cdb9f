// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles two ways of adding that hardware may have, to find programs which count on one
// of them.
#include "sim/exec/isa/mma_tile.h"
#include "sim/exec/isa/real.h"

namespace sim::base {
namespace {

constexpr unsigned kRows = 16, kCols = 8;

int exponent(double x) { return static_cast<int>(bits_of(x) >> 52 & 0x7FF) - 1023; }
double power_of_two(int e) { return double_of(static_cast<uint64_t>(e + 1023) << 52); }

float towards_zero(double x) {
  const float f = static_cast<float>(x);
  const double back = f;
  const bool over = (back < 0 ? -back : back) > (x < 0 ? -x : x);
  return over ? float_of(bits_of(f) - 1) : f;
}

// Every term loses what is below 2^(largest exponent - bits); the rest adds up exactly.
double align_and_cut(const double* terms, unsigned count, int bits) {
  int largest = -1023;
  double plain = 0;
  for (unsigned k = 0; k < count; ++k) {
    const int e = exponent(terms[k]);
    largest = e > largest ? e : largest;
    plain += terms[k];
  }
  if (largest == -1023 || largest == 1024) return plain;  // zeros alone; infinity or NaN
  const double grow = power_of_two(bits - largest), shrink = power_of_two(largest - bits);
  int64_t total = 0;
  for (unsigned k = 0; k < count; ++k) total += static_cast<int64_t>(terms[k] * grow);
  return towards_zero(static_cast<double>(total) * shrink);
}

}  // namespace

// A fused step: the exact product is added to odd in double, and the odd bit makes the rounding to
// single precision the only one.
void multiply_sequential(const double* a, const double* b, unsigned k, double* sum) {
  for (unsigned r = 0; r < kRows; ++r) {
    for (unsigned c = 0; c < kCols; ++c) {
      double s = sum[r * kCols + c];
      for (unsigned j = 0; j < k; ++j) {
        s = static_cast<float>(sum_to_odd(s, a[j * kRows + r] * b[j * kCols + c]));
      }
      sum[r * kCols + c] = s;
    }
  }
}

void multiply_coarse(const double* a, const double* b, unsigned k, int bits, double* sum) {
  double terms[65];
  for (unsigned r = 0; r < kRows; ++r) {
    for (unsigned c = 0; c < kCols; ++c) {
      for (unsigned j = 0; j < k; ++j) terms[j] = a[j * kRows + r] * b[j * kCols + c];
      terms[k] = sum[r * kCols + c];
      sum[r * kCols + c] = align_and_cut(terms, k + 1, bits);
    }
  }
}

}  // namespace sim::base
