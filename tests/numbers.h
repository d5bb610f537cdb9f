// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file converts values to and from bytes of the dtypes of lathe.h, by means of the compiler,
// not of the library.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "api/lathe.h"

namespace numbers {

inline size_t bytes_of(lathe_dtype dtype) {
  switch (dtype) {
    case LATHE_F32:
    case LATHE_I32:
      return 4;
    case LATHE_F16:
    case LATHE_BF16:
      return 2;
    case LATHE_I64:
      return 8;
    case LATHE_F8_E4M3:
    case LATHE_U8:
      return 1;
  }
  return 0;
}

// Returns half of the last place of 1: the largest relative error of one rounding.
inline double half_ulp(lathe_dtype dtype) {
  return dtype == LATHE_F32 ? 0x1p-24 : dtype == LATHE_F16 ? 0x1p-11 : 0x1p-8;
}

inline uint16_t to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// Looks the nearest number up: the definition, not the way that kernels go.
inline double e4m3_value(int code) {
  const int exponent = code / 8 % 16, fraction = code % 8;
  if (code % 128 == 127) return std::numeric_limits<double>::quiet_NaN();
  const double size =
      exponent == 0 ? fraction / 512.0 : (1 + fraction / 8.0) * std::exp2(exponent - 7);
  return code >= 128 ? -size : size;
}
inline uint8_t to_e4m3(double value) {
  if (std::isnan(value)) return 0x7f;
  int best = 0;
  for (int code = 1; code < 127; ++code) {
    const double now = std::abs(e4m3_value(code) - std::abs(value));
    const double before = std::abs(e4m3_value(best) - std::abs(value));
    if (now < before || (now == before && code % 2 == 0)) best = code;
  }
  return static_cast<uint8_t>(best + (std::signbit(value) ? 128 : 0));
}

template <typename T>
void put(void* to, T value) {
  std::memcpy(to, &value, sizeof value);
}
template <typename T>
T get(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

inline void encode(lathe_dtype dtype, double value, void* to) {
  switch (dtype) {
    case LATHE_F32:
      return put(to, static_cast<float>(value));
    case LATHE_F16:
      return put(to, static_cast<_Float16>(value));
    case LATHE_BF16:
      return put(to, to_bf16(static_cast<float>(value)));
    case LATHE_I32:
      return put(to, static_cast<int32_t>(value));
    case LATHE_I64:
      return put(to, static_cast<int64_t>(value));
    case LATHE_F8_E4M3:
      return put(to, to_e4m3(value));
    case LATHE_U8:
      return put(to, static_cast<uint8_t>(value));
  }
}

inline double decode(lathe_dtype dtype, const void* from) {
  switch (dtype) {
    case LATHE_F32:
      return get<float>(from);
    case LATHE_F16:
      return static_cast<double>(get<_Float16>(from));
    case LATHE_BF16:
      return std::bit_cast<float>(static_cast<uint32_t>(get<uint16_t>(from)) << 16);
    case LATHE_I32:
      return get<int32_t>(from);
    case LATHE_I64:
      return static_cast<double>(get<int64_t>(from));
    case LATHE_F8_E4M3:
      return e4m3_value(get<uint8_t>(from));
    case LATHE_U8:
      return get<uint8_t>(from);
  }
  return std::numeric_limits<double>::quiet_NaN();
}

inline double rounded(lathe_dtype dtype, double value) {
  unsigned char bytes[8];
  encode(dtype, value, bytes);
  return decode(dtype, bytes);
}

}  // namespace numbers
