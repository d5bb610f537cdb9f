// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Values of float16 and of the 8-bit float e4m3, whose arithmetic the host's compilers do not all
// have.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace lathe {

inline double half_value(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  double value;
  if (exponent == 31) {
    value = fraction != 0 ? std::nan("") : std::numeric_limits<double>::infinity();
  } else {
    value = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(fraction + 1024, exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

// e4m3 has no infinity; the code of all ones is not a number.
inline double e4m3_value(uint8_t code) {
  const int exponent = code >> 3 & 15, fraction = code & 7;
  double value = exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(fraction + 8, exponent - 10);
  if ((code & 0x7f) == 0x7f) value = std::nan("");
  return (code & 0x80) != 0 ? -value : value;
}
// Returns the code of the nearest number, ties to even; numbers beyond the largest, 448, become it.
inline uint8_t to_e4m3(double value) {
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return sign | 0x7f;
  const double size = std::fmin(std::fabs(value), 448);
  const int exponent = size < 0x1p-6 ? -6 : std::ilogb(size);
  const auto steps = static_cast<int>(std::nearbyint(std::ldexp(size, 3 - exponent)));
  // A carry out of the fraction adds one to the exponent. Below 2^-6 numbers are 2^-9 apart.
  return sign | static_cast<uint8_t>(steps + ((exponent + 6) << 3));
}

}  // namespace lathe
