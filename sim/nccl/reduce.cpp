// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One loop per element type; half types pass through float32.
#include "sim/nccl/reduce.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace sim::nccl {
namespace {

float bits_to_float(uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

uint32_t float_to_bits(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

struct Bfloat16 {
  uint16_t bits;
  explicit operator float() const { return bits_to_float(uint32_t{bits} << 16); }
  static Bfloat16 from(float value) {
    const uint32_t wide = float_to_bits(value);
    if (std::isnan(value)) return {0x7fff};
    return {static_cast<uint16_t>((wide + 0x7fff + ((wide >> 16) & 1)) >> 16)};
  }
};

struct Float16 {
  uint16_t bits;
  explicit operator float() const {
    const uint32_t sign = uint32_t{bits} >> 15 << 31;
    const uint32_t exponent = bits >> 10 & 31, mantissa = bits & 1023;
    if (exponent == 31) return bits_to_float(sign | 0x7f800000 | mantissa << 13);
    if (exponent != 0) return bits_to_float(sign | (exponent + 112) << 23 | mantissa << 13);
    const float small = std::ldexp(static_cast<float>(mantissa), -24);
    return sign != 0 ? -small : small;
  }
  static Float16 from(float value) {
    const uint16_t sign = static_cast<uint16_t>(float_to_bits(value) >> 31 << 15);
    if (std::isnan(value)) return {0x7fff};
    const float size = std::fabs(value);
    if (size >= 65520.0f) return {static_cast<uint16_t>(sign | 0x7c00)};
    if (size < 6.103515625e-05f) {  // subnormal: a whole number of 2^-24, rounded to even
      return {static_cast<uint16_t>(sign |
                                    static_cast<uint16_t>(std::nearbyint(std::ldexp(size, 24))))};
    }
    const uint32_t wide = float_to_bits(size);
    const uint32_t rounded = wide + 0xfff + ((wide >> 13) & 1);
    return {static_cast<uint16_t>(sign | ((rounded >> 13) - (112u << 10)))};
  }
};

// The type an element is computed in: float for the two half types, which are classes.
template <typename T>
using Arithmetic = std::conditional_t<std::is_class_v<T>, float, T>;

// Integer overflow wraps, as it does on the device.
template <typename A>
A combine(A a, A b, ncclRedOp_t op) {
  if constexpr (std::is_integral_v<A>) {
    using U = std::make_unsigned_t<A>;
    const uint64_t x = static_cast<U>(a), y = static_cast<U>(b);
    if (op == ncclSum || op == ncclAvg) return static_cast<A>(static_cast<U>(x + y));
    if (op == ncclProd) return static_cast<A>(static_cast<U>(x * y));
  } else {
    if (op == ncclSum || op == ncclAvg) return a + b;
    if (op == ncclProd) return a * b;
    if (std::isnan(a) || std::isnan(b)) return a + b;
  }
  return op == ncclMax ? std::max(a, b) : std::min(a, b);
}

template <typename T>
T finish(Arithmetic<T> value) {
  if constexpr (std::is_class_v<T>) {
    return T::from(value);
  } else {
    return value;
  }
}

template <typename T>
void reduce_as(const std::vector<const void*>& inputs, void* out, size_t count, ncclRedOp_t op) {
  using A = Arithmetic<T>;
  for (size_t at = 0; at < count; ++at) {
    A sum = static_cast<A>(static_cast<const T*>(inputs[0])[at]);
    for (size_t rank = 1; rank < inputs.size(); ++rank) {
      sum = combine(sum, static_cast<A>(static_cast<const T*>(inputs[rank])[at]), op);
    }
    if (op == ncclAvg) sum = static_cast<A>(sum / static_cast<A>(inputs.size()));
    static_cast<T*>(out)[at] = finish<T>(sum);
  }
}

struct Reduction {
  ncclDataType_t type;
  void (*run)(const std::vector<const void*>& inputs, void* out, size_t count, ncclRedOp_t op);
};
constexpr Reduction kReductions[] = {
    {ncclInt8, reduce_as<int8_t>},     {ncclUint8, reduce_as<uint8_t>},
    {ncclInt32, reduce_as<int32_t>},   {ncclUint32, reduce_as<uint32_t>},
    {ncclInt64, reduce_as<int64_t>},   {ncclUint64, reduce_as<uint64_t>},
    {ncclFloat16, reduce_as<Float16>}, {ncclFloat32, reduce_as<float>},
    {ncclFloat64, reduce_as<double>},  {ncclBfloat16, reduce_as<Bfloat16>}};

}  // namespace

bool can_reduce(ncclDataType_t type) { return type != ncclFloat8e4m3 && type != ncclFloat8e5m2; }

void reduce(const std::vector<const void*>& inputs, void* out, size_t count, ncclDataType_t type,
            ncclRedOp_t op) {
  for (const Reduction& each : kReductions) {
    if (each.type == type) return each.run(inputs, out, count, op);
  }
}

}  // namespace sim::nccl
