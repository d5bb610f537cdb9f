// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Each operation of atom and red makes the new value of an element from the old one and the
// operand. Elements are bits, so floats are converted here.
#pragma once

#include "sim/exec/isa/real.h"

namespace sim::SIM_ISA {
namespace {

using Swap = decltype([](auto, auto b) { return b; });
using AddInt = decltype([](auto a, auto b) { return a + b; });
using MinOf = decltype([](auto a, auto b) { return a < b ? a : b; });
using MaxOf = decltype([](auto a, auto b) { return a > b ? a : b; });
using And = decltype([](auto a, auto b) { return a & b; });
using Or = decltype([](auto a, auto b) { return a | b; });
using Xor = decltype([](auto a, auto b) { return a ^ b; });
using Inc = decltype([](auto a, auto b) { return a >= b ? 0 : a + 1; });
using Dec = decltype([](auto a, auto b) { return a == 0 || a > b ? b : a - 1; });

struct AddF32 {
  uint32_t operator()(uint32_t a, uint32_t b) const {
    return bits_of(canonical(float_of(a) + float_of(b)));
  }
};
// On global memory the addition flushes subnormals.
struct AddF32Ftz {
  uint32_t operator()(uint32_t a, uint32_t b) const {
    return bits_of(flush(canonical(flush(float_of(a)) + flush(float_of(b)))));
  }
};
// A generic address decides for each lane which of the two it is.
struct AddF32Generic : AddF32Ftz {};
struct AddF64 {
  uint64_t operator()(uint64_t a, uint64_t b) const {
    return bits_of(canonical(double_of(a) + double_of(b)));
  }
};

// Applies One to an element of 16 bits, or to both halves of an element of 32 bits.
template <uint32_t (*One)(uint32_t, uint32_t)>
struct Halves {
  uint16_t operator()(uint16_t a, uint16_t b) const { return static_cast<uint16_t>(One(a, b)); }
  uint32_t operator()(uint32_t a, uint32_t b) const {
    return One(a & 0xFFFFu, b & 0xFFFFu) | One(a >> 16, b >> 16) << 16;
  }
};

template <class H>
uint32_t add_half(uint32_t a, uint32_t b) {
  return H::round(to_odd(sum_to_odd(H::load(a), H::load(b)))) & 0xFFFFu;
}

// Maps halves to integers in the order of the numbers, -0 below +0.
inline int32_t half_order(uint32_t h) {
  return h & 0x8000u ? -1 - static_cast<int32_t>(h & 0x7FFFu) : static_cast<int32_t>(h);
}
template <class H, bool Max>
uint32_t extreme_half(uint32_t a, uint32_t b) {
  const uint32_t inf = H::inf;
  if ((a & 0x7FFFu) > inf) return (b & 0x7FFFu) > inf ? 0x7FFFu : b;
  if ((b & 0x7FFFu) > inf) return a;
  const int32_t x = half_order(a), y = half_order(b);
  return (Max ? x > y : x < y) ? a : b;
}

}  // namespace
}  // namespace sim::SIM_ISA
