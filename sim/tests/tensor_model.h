// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file models matrix instructions as tables of formulas: where each element of a fragment
// lies, what its bits mean, and the product by the definition.
#pragma once

#include <cmath>
#include <functional>
#include <random>

#include "sim/tests/kernel_run.h"

namespace sim::test {

struct Place {
  int row, col;
};
// A Layout places, for lane 4g + q, element i in register order, low bits first.
using Layout = std::function<Place(int g, int q, int i)>;

inline int bits_of_type(const std::string& t) {
  if (t == "f64") return 64;
  if (t == "f32" || t == "s32" || t == "tf32") return 32;
  if (t == "f16" || t == "bf16") return 16;
  if (t == "s4" || t == "u4") return 4;
  return t == "b1" ? 1 : 8;
}

// Returns sign * fraction * 2^exponent, by the format's definition.
inline double small_float(uint32_t bits, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int e = static_cast<int>(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  const double f = bits & ((1u << fraction_bits) - 1);
  const double sign = bits >> (exponent_bits + fraction_bits) & 1 ? -1 : 1;
  if (e == 0) return sign * std::ldexp(f, 1 - bias - fraction_bits);
  return sign * std::ldexp(f + std::ldexp(1.0, fraction_bits), e - bias - fraction_bits);
}

// Decodes finite values alone.
inline double decode(const std::string& t, uint64_t bits) {
  const auto b = static_cast<uint32_t>(bits);
  if (t == "f16") return small_float(b & 0xFFFF, 5, 10);
  if (t == "bf16") return small_float(b & 0xFFFF, 8, 7);
  if (t == "tf32") return small_float(b >> 13, 8, 10);
  if (t == "f32") return small_float(b, 8, 23);
  if (t == "e4m3") return small_float(b & 0xFF, 4, 3);
  if (t == "e5m2") return small_float(b & 0xFF, 5, 2);
  if (t == "s8") return static_cast<int8_t>(b);
  if (t == "u8") return b & 0xFF;
  if (t == "s4") return static_cast<int>((b & 15) ^ 8) - 8;
  if (t == "u4") return b & 15;
  if (t == "b1") return b & 1;
  if (t == "s32") return static_cast<int32_t>(b);
  double d;
  std::memcpy(&d, &bits, 8);
  return d;
}

// Returns a random element; floats lie within a few binary orders, so that a few dozen products add
// up exactly in double.
inline uint64_t random_element(const std::string& t, std::mt19937& rng) {
  const uint32_t r = rng();
  auto floating = [&](int exponent_bits, int fraction_bits) {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const uint32_t e = static_cast<uint32_t>(bias - 3) + (r >> 8) % 6;
    return (r & 1u) << (exponent_bits + fraction_bits) | e << fraction_bits |
           (r >> 11 & ((1u << fraction_bits) - 1));
  };
  if (t == "f16") return floating(5, 10);
  if (t == "bf16") return floating(8, 7);
  if (t == "tf32") return floating(8, 10) << 13 | (rng() & 0x1FFF);
  if (t == "f32") return floating(8, 23);
  if (t == "e4m3") return floating(4, 3);
  if (t == "e5m2") return floating(5, 2);
  if (t == "s32") return static_cast<uint32_t>(static_cast<int32_t>(r) / 4);
  if (t == "f64") {
    const double d = static_cast<double>(static_cast<int32_t>(r) >> 11) / 65536;
    uint64_t b;
    std::memcpy(&b, &d, 8);
    return b;
  }
  return r & ((1u << bits_of_type(t)) - 1);
}

struct Matrix {
  std::string type;
  int rows = 0, cols = 0;
  std::vector<uint64_t> bits;
  Matrix(std::string t, int r, int c)
      : type(std::move(t)), rows(r), cols(c), bits(static_cast<size_t>(r) * c) {}
  uint64_t& at(int r, int c) { return bits[static_cast<size_t>(r) * cols + c]; }
  uint64_t at(int r, int c) const { return bits[static_cast<size_t>(r) * cols + c]; }
  double value(int r, int c) const { return decode(type, at(r, c)); }
  void fill(std::mt19937& rng) {
    for (uint64_t& b : bits) b = random_element(type, rng);
  }
};

// Returns the registers of a fragment, [lane][register], 32-bit words (64 for f64).
inline std::vector<uint64_t> to_fragment(const Matrix& m, const Layout& layout, int elements) {
  const int bits = bits_of_type(m.type), cell = bits == 64 ? 64 : 32;
  const int registers = elements * bits / cell;
  std::vector<uint64_t> out(static_cast<size_t>(32) * registers);
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < elements; ++i) {
      const Place p = layout(lane / 4, lane % 4, i);
      out[static_cast<size_t>(lane) * registers + i * bits / cell] |= m.at(p.row, p.col)
                                                                      << (i * bits % cell);
    }
  }
  return out;
}
inline Matrix from_fragment(const std::string& type, int rows, int cols,
                            const std::vector<uint64_t>& words, const Layout& layout,
                            int elements) {
  const int bits = bits_of_type(type), cell = bits == 64 ? 64 : 32;
  const int registers = elements * bits / cell;
  const uint64_t mask = bits == 64 ? ~0ull : (1ull << bits) - 1;
  Matrix m(type, rows, cols);
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < elements; ++i) {
      const Place p = layout(lane / 4, lane % 4, i);
      const uint64_t word = words[static_cast<size_t>(lane) * registers + i * bits / cell];
      m.at(p.row, p.col) = word >> (i * bits % cell) & mask;
    }
  }
  return m;
}

// Returns the nearest value of a format with `fraction` bits, ties to even; for the normal range
// alone.
inline double nearest(double x, int fraction) {
  if (x == 0) return 0;
  const double step = std::ldexp(1.0, std::ilogb(x) - fraction);
  return std::nearbyint(x / step) * step;
}

}  // namespace sim::test
