// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The files of cvt share these: the reading of a source, rounding to whole numbers, integers that
// clamp.
#pragma once

#include "sim/exec/isa/real.h"

// These conversions are too rare to be worth a copy per instruction set; see
// LATHE_SIM_ONCE_SOURCES.
namespace sim::base {
Handler resolve_convert_rare(const Form& f);
Handler resolve_convert_fp8(const Form& f);
}  // namespace sim::base

namespace sim::SIM_ISA {

// These functions resolve by the type of the result; they return null for forms that they do not
// know.
Handler resolve_convert_integer(const Form& f);
Handler resolve_convert_float(const Form& f);
Handler resolve_convert_half(const Form& f);

namespace {

template <class T>
constexpr bool kIsFloat = static_cast<T>(0.5) != static_cast<T>(0);

// Each of these reads a lane of a source.
struct AsF16 {
  using cell = uint32_t;
  static SIM_INLINE float load(uint32_t v) { return from_f16(v & 0xFFFFu); }
};
struct AsBf16 {
  using cell = uint32_t;
  static SIM_INLINE float load(uint32_t v) { return from_bf16(v & 0xFFFFu); }
};
struct AsF32 {
  using cell = float;
  static SIM_INLINE float load(float v) { return v; }
};
struct AsF32Ftz {
  using cell = float;
  static SIM_INLINE float load(float v) { return flush(v); }
};
struct AsF64 {
  using cell = double;
  static SIM_INLINE double load(double v) { return v; }
};

// Returns make(S()) for the way S that the form reads a source of floats; null for other sources.
template <class Make>
Handler with_real_source(const Form& f, Make make) {
  switch (f.types[1]) {
    case Type::f32:
      return f.has(kFtz) ? make(AsF32Ftz()) : make(AsF32());
    case Type::f64:
      return make(AsF64());
    case Type::f16:
      return make(AsF16());
    case Type::bf16:
      return make(AsBf16());
    default:
      return nullptr;
  }
}

template <class T>
struct AsInt {
  using cell = T;
  static SIM_INLINE T load(T v) { return v; }
};

template <Round R>
SIM_INLINE double to_whole(double x) {
  if (R == Round::rzi) return __builtin_trunc(x);
  if (R == Round::rmi) return __builtin_floor(x);
  if (R == Round::rpi) return __builtin_ceil(x);
  return __builtin_nearbyint(x);
}
// Clamps to D. An S of under 64 bits has its limits in 64; beyond what S can hold a limit is never
// met.
template <class D, class S>
D clamped_to(S v) {
  if constexpr (sizeof(S) < 8) {
    constexpr bool kSign = D(-1) < D(0);
    constexpr int64_t kHigh =
        sizeof(D) == 8 ? INT64_MAX : (int64_t(1) << (sizeof(D) * 8 - (kSign ? 1 : 0))) - 1;
    constexpr int64_t kLow = kSign ? -kHigh - 1 : 0;
    const int64_t x = v;
    return static_cast<D>(x < kLow ? kLow : x > kHigh ? kHigh : x);
  } else {
    using Big = __int128;
    constexpr bool kSign = D(-1) < D(0);
    constexpr Big kHigh = (Big(1) << (sizeof(D) * 8 - (kSign ? 1 : 0))) - 1;
    constexpr Big kLow = kSign ? -kHigh - 1 : 0;
    const Big x = v;
    return static_cast<D>(x < kLow ? kLow : x > kHigh ? kHigh : x);
  }
}
template <class D, class S>
void int_int(Warp& w, const Inst& i, uint32_t exec) {
  if constexpr (sizeof(D) == 8) {
    unary<D, S>(w, i, exec, [](S a) { return static_cast<D>(a); });
  } else {
    // imm cuts the result to its register.
    const auto cut = static_cast<uint32_t>(i.imm);
    unary<uint32_t, S>(w, i, exec,
                       [cut](S a) { return static_cast<uint32_t>(static_cast<D>(a)) & cut; });
  }
}
// Returns a whole number clamped to D; NaN gives 0, or 2^63 where 64 bits are involved.
template <class D>
SIM_INLINE D clamp_to(double x, bool wide) {
  constexpr bool kSign = D(-1) < D(0);
  constexpr double top =
      kSign ? double(1ull << (sizeof(D) * 8 - 1)) : 2.0 * double(1ull << (sizeof(D) * 8 - 1));
  if (x != x) return wide ? D(D(1) << (sizeof(D) * 8 - 1)) : D(0);
  if (x >= top) return D(kSign ? D(~(D(1) << (sizeof(D) * 8 - 1))) : D(~D(0)));
  if (kSign) return x < -top ? D(D(1) << (sizeof(D) * 8 - 1)) : static_cast<D>(x);
  return x <= 0 ? D(0) : static_cast<D>(x);
}
template <class D, class S, Round R>
void float_int(Warp& w, const Inst& i, uint32_t exec) {
  using C = typename S::cell;
  constexpr bool wide = sizeof(D) == 8 || sizeof(C) == 8;
  if constexpr (sizeof(D) == 8) {
    unary<D, C>(w, i, exec, [](C a) { return clamp_to<D>(to_whole<R>(S::load(a)), wide); });
  } else {
    const auto cut = static_cast<uint32_t>(i.imm);
    unary<uint32_t, C>(w, i, exec, [cut](C a) {
      return static_cast<uint32_t>(clamp_to<D>(to_whole<R>(S::load(a)), wide)) & cut;
    });
  }
}

// Does the same in three steps, each of which serves many forms: to double, to whole numbers, to D.
template <class S>
__attribute__((noinline)) void to_doubles(const Warp& w, const Inst& i, double* out) {
  const auto* a = cells<typename S::cell>(w, i.a);
  for (int l = 0; l < 32; ++l) out[l] = S::load(a[l]);
}
__attribute__((noinline, unused)) void to_wholes(Round r, double* x) {
  for (int l = 0; l < 32; ++l) {
    x[l] = r == Round::rzi   ? to_whole<Round::rzi>(x[l])
           : r == Round::rmi ? to_whole<Round::rmi>(x[l])
           : r == Round::rpi ? to_whole<Round::rpi>(x[l])
                             : to_whole<Round::rni>(x[l]);
  }
}
template <class D>
__attribute__((noinline)) void from_wholes(Warp& w, const Inst& i, uint32_t exec, const double* x,
                                           bool wide) {
  if constexpr (sizeof(D) == 8) {
    each<D>(w, i.d, exec, [=](int l) { return clamp_to<D>(x[l], wide); });
  } else {
    const auto cut = static_cast<uint32_t>(i.imm);
    each<uint32_t>(w, i.d, exec,
                   [=](int l) { return static_cast<uint32_t>(clamp_to<D>(x[l], wide)) & cut; });
  }
}
template <class D, class S, Round R>
void float_int_steps(Warp& w, const Inst& i, uint32_t exec) {
  double x[32];
  to_doubles<S>(w, i, x);
  to_wholes(R, x);
  from_wholes<D>(w, i, exec, x, sizeof(D) == 8 || sizeof(typename S::cell) == 8);
}
template <class D, class S>
Handler float_int_round(Round r) {
  return find_handler(r, {{Round::rni, SIM_RARE(float_int_steps<D, S, Round::rni>)},
                          {Round::rzi, SIM_RARE(float_int_steps<D, S, Round::rzi>)},
                          {Round::rmi, SIM_RARE(float_int_steps<D, S, Round::rmi>)},
                          {Round::rpi, SIM_RARE(float_int_steps<D, S, Round::rpi>)}});
}

}  // namespace
}  // namespace sim::SIM_ISA
