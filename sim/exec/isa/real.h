// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds helpers for floating point: flushing, canonical NaNs, rounding modes, 16-bit
// formats. A build for one instruction set includes it; it has internal linkage.
#pragma once

#include <xmmintrin.h>

#include "sim/exec/handlers.h"

namespace sim::SIM_ISA {
namespace {

#define SIM_INLINE inline __attribute__((always_inline))

SIM_INLINE float flush(float x) {
  const uint32_t b = bits_of(x);
  return float_of((b & 0x7F800000u) == 0 ? b & 0x80000000u : b);
}
SIM_INLINE double flush(double x) { return x; }

SIM_INLINE float canonical(float x) { return x == x ? x : float_of(0x7FFFFFFFu); }
SIM_INLINE double canonical(double x) { return x == x ? x : double_of(0x7FF8000000000000ull); }

template <class F>
SIM_INLINE F saturated(F x) {
  return x > F(0) ? (x < F(1) ? x : F(1)) : F(0);
}

// Holds the host's rounding mode while a handler computes. The memory clobbers keep the
// computation between them: it reads and writes register cells.
template <Round Mode>
struct Rounding {
  SIM_INLINE Rounding() {
    if (Mode == Round::rn || Mode == Round::none) return;
    old = _mm_getcsr();
    constexpr unsigned bits = Mode == Round::rz ? 0x6000u : Mode == Round::rm ? 0x2000u : 0x4000u;
    _mm_setcsr((old & ~0x6000u) | bits);
    asm volatile("" ::: "memory");
  }
  SIM_INLINE ~Rounding() {
    if (Mode == Round::rn || Mode == Round::none) return;
    asm volatile("" ::: "memory");
    _mm_setcsr(old);
  }
  unsigned old = 0;
};

// Runs a handler made for rounding to nearest in another mode.
template <Handler Nearest, Round Mode>
void in_mode(Warp& w, const Inst& i, uint32_t exec) {
  Rounding<Mode> mode;
  Nearest(w, i, exec);
}
template <Handler Nearest>
Handler by_mode(Round r) {
  return r == Round::rz   ? SIM_RARE(in_mode<Nearest, Round::rz>)
         : r == Round::rm ? SIM_RARE(in_mode<Nearest, Round::rm>)
         : r == Round::rp ? SIM_RARE(in_mode<Nearest, Round::rp>)
                          : Nearest;
}

// Runs a handler and then clamps its result to [0, 1]. Flushing commutes with that.
template <Handler Plain, class F>
void then_saturated(Warp& w, const Inst& i, uint32_t exec) {
  Plain(w, i, exec);
  const F* d = cells<F>(w, i.d);
  each<F>(w, i.d, exec, [=](int l) { return saturated(d[l]); });
}

// These round once, to bfloat16 and float16. Results are bits in the low half.
SIM_INLINE uint32_t to_bf16_rn(float x) {
  const uint32_t b = bits_of(x);
  const uint32_t r = (b + 0x7FFFu + (b >> 16 & 1u)) >> 16;
  return (b & 0x7FFFFFFFu) > 0x7F800000u ? 0x7FFFu : r;
}
SIM_INLINE float from_bf16(uint32_t h) { return float_of(h << 16); }

SIM_INLINE float from_f16(uint32_t h) {
  // Exponent and fraction are moved into place and scaled by 2^112; infinities and NaN are made by
  // hand.
  const uint32_t magnitude = (h & 0x7FFFu) << 13;
  const float scaled = float_of(magnitude) * float_of(0x77800000u);
  const uint32_t bits = magnitude >= 0x0F800000u ? magnitude | 0x7F800000u : bits_of(scaled);
  return float_of(bits | (h & 0x8000u) << 16);
}
SIM_INLINE uint32_t to_f16_rn(float x) {
  const uint32_t b = bits_of(x), sign = b >> 16 & 0x8000u, m = b & 0x7FFFFFFFu;
  // Subnormal results: adding 0.5 aligns the fraction at 2^-24, and the addition rounds.
  const uint32_t small = bits_of(float_of(m) + 0.5f) - 0x3F000000u;
  const uint32_t normal = (m - 0x38000000u + 0xFFFu + (m >> 13 & 1u)) >> 13;
  uint32_t r = m < 0x38800000u ? small : normal;
  r = m >= 0x477FF000u ? 0x7C00u : r;
  r = m > 0x7F800000u ? 0x7FFFu : r | sign;
  return r;
}

// Converts a double to float and keeps the information that it was inexact in the last bit (round
// to odd), so that a second rounding to 16 bits is the right one.
SIM_INLINE float to_odd(double x) {
  const float f = static_cast<float>(x);
  const double back = f;
  uint32_t b = bits_of(f);
  const double ax = x < 0 ? -x : x, ab = back < 0 ? -back : back;
  b -= ab > ax ? 1u : 0u;
  b |= ab != ax && x == x ? 1u : 0u;
  return float_of(b);
}
// Returns a + b as a double, rounded to odd.
SIM_INLINE double sum_to_odd(double a, double b) {
  const double s = a + b;
  const double t = s - a;
  const double e = (a - (s - t)) + (b - t);
  uint64_t bits = bits_of(s);
  const bool finite = (bits & 0x7FF0000000000000ull) != 0x7FF0000000000000ull;
  const bool inexact = finite && e != 0;
  // The result moves towards zero if the error points there, then gets an odd last bit.
  const bool back = inexact && ((e < 0) != (s < 0));
  bits -= back ? 1u : 0u;
  bits |= inexact ? 1u : 0u;
  return double_of(bits);
}

struct F16 {
  static SIM_INLINE float load(uint32_t h) { return from_f16(h); }
  static SIM_INLINE uint32_t round(float x) { return to_f16_rn(x); }
  static constexpr uint32_t one = 0x3C00, inf = 0x7C00;
};
struct Bf16 {
  static SIM_INLINE float load(uint32_t h) { return from_bf16(h); }
  static SIM_INLINE uint32_t round(float x) { return to_bf16_rn(x); }
  static constexpr uint32_t one = 0x3F80, inf = 0x7F80;
};

}  // namespace
}  // namespace sim::SIM_ISA
