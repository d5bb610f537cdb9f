// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles cvt to f32 and f64.
#include "sim/exec/isa/convert.h"

namespace sim::SIM_ISA {
namespace {

template <class D, class S, bool Ftz>
__attribute__((noinline)) void to_real(Warp& w, const Inst& i, uint32_t exec) {
  using C = typename S::cell;
  unary<D, C>(
      w, i, exec, [](C a) __attribute__((always_inline)) {
        D v = static_cast<D>(S::load(a));
        if constexpr (kIsFloat<D>) v = canonical(v);
        return Ftz ? flush(v) : v;
      });
}

// If every value of S is one of D the rounding mode does not matter: there is one handler.
template <Handler Nearest, class D, bool Exact>
Handler to_real_round(Round r, bool sat) {
  if (r > Round::rp) return nullptr;
  if constexpr (!Exact) {
    if (sat) {
      if (r == Round::rz) return SIM_RARE(then_saturated<in_mode<Nearest, Round::rz>, D>);
      if (r == Round::rm) return SIM_RARE(then_saturated<in_mode<Nearest, Round::rm>, D>);
      if (r == Round::rp) return SIM_RARE(then_saturated<in_mode<Nearest, Round::rp>, D>);
    }
    if (!sat) return by_mode<Nearest>(r);
  }
  return sat ? SIM_RARE(then_saturated<Nearest, D>) : Nearest;
}
// Only where a result may be a subnormal f32 there is something to flush.
template <class D, class S, bool Exact, bool Flushes = false>
Handler to_real_mods(const Form& f) {
  const bool sat = f.has(kSat);
  if constexpr (Flushes) {
    if (f.has(kFtz)) return to_real_round<to_real<D, S, true>, D, Exact>(f.round, sat);
  }
  return to_real_round<to_real<D, S, false>, D, Exact>(f.round, sat);
}

// f32 to f32 and f64 to f64: to a whole number, or just flushed and clamped.
template <class F, Round R, bool Ftz>
__attribute__((noinline)) void whole(Warp& w, const Inst& i, uint32_t exec) {
  unary<F, F>(
      w, i, exec, [](F a) __attribute__((always_inline)) {
        F v = Ftz ? flush(a) : a;
        if (R >= Round::rni) v = static_cast<F>(to_whole<R>(v));
        return canonical(v);
      });
}
template <class F, Round R>
Handler whole_mods(const Form& f) {
  const bool sat = f.has(kSat);
  if constexpr (sizeof(F) == 4) {
    if (f.has(kFtz)) {
      return sat ? SIM_RARE(then_saturated<whole<F, R, true>, F>) : whole<F, R, true>;
    }
    return sat ? SIM_RARE(then_saturated<whole<F, R, false>, F>) : whole<F, R, false>;
  }
  return sat ? SIM_RARE(then_saturated<whole<F, R, false>, F>) : SIM_RARE(whole<F, R, false>);
}
template <class F>
Handler same_real(const Form& f) {
  return resolve_by(f.round, f,
                    {{Round::rni, whole_mods<F, Round::rni>},
                     {Round::rzi, whole_mods<F, Round::rzi>},
                     {Round::rmi, whole_mods<F, Round::rmi>},
                     {Round::rpi, whole_mods<F, Round::rpi>},
                     {Round::none, whole_mods<F, Round::none>}});
}

template <class D>
Handler to_real_from(const Form& f, Type s) {
  constexpr bool kWide = sizeof(D) == 8;
  if (s == Type::f16) return to_real_mods<D, AsF16, true>(f);
  if (s == Type::bf16) return to_real_mods<D, AsBf16, true, !kWide>(f);
  if (is_bits(s)) return nullptr;
  return with_integer(s, [&f](auto value) {
    using S = decltype(value);
    // The fraction of f32 has 24 bits, and that of f64 has 53.
    return to_real_mods<D, AsInt<S>, sizeof(S) < (kWide ? 8 : 4)>(f);
  });
}

}  // namespace

Handler resolve_convert_float(const Form& f) {
  const Type s = f.types[1];
  if (is_integer(s) && f.round == Round::none) return nullptr;
  if (f.types[0] == Type::f32) {
    if (s == Type::f32) return same_real<float>(f);
    if (s != Type::f64) return to_real_from<float>(f, s);
    return f.round == Round::none ? nullptr : to_real_mods<float, AsF64, false, true>(f);
  }
  if (s == Type::f64) return same_real<double>(f);
  if (s != Type::f32) return to_real_from<double>(f, s);
  return f.has(kFtz) ? to_real_mods<double, AsF32Ftz, true>(f)
                     : to_real_mods<double, AsF32, true>(f);
}

}  // namespace sim::SIM_ISA
