// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The files of cvt to 16-bit floats share these functions: one rounding in each mode.
#pragma once

#include "sim/exec/isa/convert.h"

namespace sim::SIM_ISA {
namespace {

template <Round R>
SIM_INLINE uint32_t to_bf16(float x) {
  if (R == Round::rn) return to_bf16_rn(x);
  const uint32_t b = bits_of(x);
  if ((b & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FFFu;
  const bool away = R == Round::rz ? false : R == Round::rp ? !(b >> 31) : b >> 31;
  return (b >> 16) + (away && (b & 0xFFFFu) && (b & 0x7F800000u) != 0x7F800000u ? 1u : 0u);
}
template <Round R>
SIM_INLINE uint32_t to_f16(float x) {
  const uint32_t near = to_f16_rn(x);
  if (R == Round::rn) return near;
  if ((near & 0x7FFFu) > 0x7C00u) return near;
  const float back = from_f16(near);
  // The result moves one step towards the wanted side where rounding to nearest went to the other.
  const float ax = x < 0 ? -x : x, ab = back < 0 ? -back : back;
  const bool negative = bits_of(x) >> 31;
  const bool up = R == Round::rz ? false : R == Round::rp ? !negative : negative;
  if (up) return ab < ax ? near + 1 : near;
  return ab > ax ? near - 1 : near;
}
template <class H, Round R>
SIM_INLINE uint32_t to_half(float x) {
  if constexpr (H::inf == 0x7C00)
    return to_f16<R>(x);
  else
    return to_bf16<R>(x);
}
template <class H, bool Relu, bool Satfinite>
SIM_INLINE uint32_t adjusted(uint32_t h) {
  const bool nan = (h & 0x7FFFu) > H::inf;
  if (Satfinite && (h & 0x7FFFu) == H::inf) h -= 1;
  if (Relu && (h & 0x8000u) && !nan) h = 0;
  return h;
}
template <class H, class S, Round R, bool Relu, bool Satfinite>
void to_half_one(Warp& w, const Inst& i, uint32_t exec) {
  using C = typename S::cell;
  unary<uint32_t, C>(
      w, i, exec, [](C a) __attribute__((always_inline)) {
        const double x = static_cast<double>(S::load(a));
        const float v = sizeof(C) == 4 && kIsFloat<C> ? static_cast<float>(x) : to_odd(x);
        return adjusted<H, Relu, Satfinite>(to_half<H, R>(v));
      });
}

// Converts in two steps, each of which serves many forms.
template <class H, Round R>
__attribute__((noinline)) void half_from_doubles(Warp& w, const Inst& i, uint32_t exec,
                                                 const double* x) {
  each<uint32_t>(w, i.d, exec, [=](int l) { return to_half<H, R>(to_odd(x[l])); });
}
template <class H, class S, Round R>
void half_steps(Warp& w, const Inst& i, uint32_t exec) {
  double x[32];
  to_doubles<S>(w, i, x);
  half_from_doubles<H, R>(w, i, exec, x);
}

}  // namespace
}  // namespace sim::SIM_ISA
