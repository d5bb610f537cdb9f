// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One element at a time by compare and exchange: other host threads may be adding to the same
// global memory.
#include "sim/exec/async/reduce.h"

#include <cstring>

#include "sim/exec/isa/real.h"

namespace sim {
namespace {

using base::bits_of;
using base::canonical;
using base::double_of;
using base::float_of;

template <class T>
T integer(T a, T b, Atomic op) {
  switch (op) {
    case Atomic::add:
      return static_cast<T>(a + b);
    case Atomic::min:
      return b < a ? b : a;
    case Atomic::max:
      return b > a ? b : a;
    case Atomic::and_:
      return a & b;
    case Atomic::or_:
      return a | b;
    case Atomic::xor_:
      return a ^ b;
    case Atomic::inc:
      return a >= b ? 0 : static_cast<T>(a + 1);
    default:  // dec
      return a == 0 || a > b ? b : static_cast<T>(a - 1);
  }
}

template <class H>
uint16_t half(uint16_t a, uint16_t b, Atomic op) {
  const float x = H::load(a), y = H::load(b);
  if (op == Atomic::add) return static_cast<uint16_t>(H::round(base::to_odd(double(x) + y)));
  if (x != x || y != y) return x != x ? (y != y ? uint16_t{0x7FFF} : b) : a;
  if (x == y) return op == Atomic::max ? a & b : a | b;  // +0 is above -0
  return (op == Atomic::max) == (x > y) ? a : b;
}

float add(float a, float b, bool flush) {
  if (!flush) return canonical(a + b);
  return base::flush(canonical(base::flush(a) + base::flush(b)));
}

template <class T, class F>
void each(uint8_t* to, const uint8_t* from, uint32_t bytes, F f) {
  for (uint32_t k = 0; k + sizeof(T) <= bytes; k += sizeof(T)) {
    auto* at = reinterpret_cast<T*>(to + k);
    T b, old = __atomic_load_n(at, __ATOMIC_RELAXED);
    std::memcpy(&b, from + k, sizeof(T));
    while (!__atomic_compare_exchange_n(at, &old, f(old, b), false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED)) {
    }
  }
}

}  // namespace

bool can_reduce(Type type, Atomic op) {
  const bool sum = op == Atomic::add, order = op == Atomic::min || op == Atomic::max;
  const bool bitwise = op == Atomic::and_ || op == Atomic::or_ || op == Atomic::xor_;
  if (type == Type::f32 || type == Type::f64) return sum;
  if (type == Type::b32 || type == Type::b64) return bitwise;
  if (type == Type::f16 || type == Type::bf16) return sum || order;
  if (type == Type::u32 && (op == Atomic::inc || op == Atomic::dec)) return true;
  const bool integer =
      type == Type::u32 || type == Type::s32 || type == Type::u64 || type == Type::s64;
  return integer && (sum || order);
}

void reduce(uint8_t* to, const uint8_t* from, uint32_t bytes, Type type, Atomic op, bool flush) {
  switch (type) {
    case Type::s32:
      return each<int32_t>(to, from, bytes, [=](int32_t a, int32_t b) {
        return op == Atomic::add
                   ? static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b))
                   : integer(a, b, op);
      });
    case Type::s64:
      return each<int64_t>(to, from, bytes, [=](int64_t a, int64_t b) {
        return op == Atomic::add
                   ? static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b))
                   : integer(a, b, op);
      });
    case Type::u64:
    case Type::b64:
      return each<uint64_t>(to, from, bytes,
                            [=](uint64_t a, uint64_t b) { return integer(a, b, op); });
    case Type::f16:
      return each<uint16_t>(to, from, bytes,
                            [=](uint16_t a, uint16_t b) { return half<base::F16>(a, b, op); });
    case Type::bf16:
      return each<uint16_t>(to, from, bytes,
                            [=](uint16_t a, uint16_t b) { return half<base::Bf16>(a, b, op); });
    case Type::f32:
      return each<uint32_t>(to, from, bytes, [=](uint32_t a, uint32_t b) {
        return bits_of(add(float_of(a), float_of(b), flush));
      });
    case Type::f64:
      return each<uint64_t>(to, from, bytes, [](uint64_t a, uint64_t b) {
        return bits_of(canonical(double_of(a) + double_of(b)));
      });
    default:
      return each<uint32_t>(to, from, bytes,
                            [=](uint32_t a, uint32_t b) { return integer(a, b, op); });
  }
}

}  // namespace sim
