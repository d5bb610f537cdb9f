// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles conversions that kernels hardly use: saturating ones between integers, floats
// to 8 and 16 bits, and to 16-bit floats from anything but f32.
#include "sim/exec/isa/convert_half.h"

namespace sim::SIM_ISA {
namespace {

// One loop for all: each pair of types is a function of a lane.
__attribute__((noinline)) void clamped(Warp& w, const Inst& i, uint32_t exec, bool from_wide,
                                       bool to_wide, uint64_t (*f)(uint64_t)) {
  uint64_t v[32];
  for (int l = 0; l < 32; ++l) {
    v[l] = f(from_wide ? cells<uint64_t>(w, i.a)[l] : cells<uint32_t>(w, i.a)[l]);
  }
  if (to_wide) return each<uint64_t>(w, i.d, exec, [&](int l) { return v[l]; });
  const auto cut = static_cast<uint32_t>(i.imm);
  each<uint32_t>(w, i.d, exec, [&](int l) { return static_cast<uint32_t>(v[l]) & cut; });
}
template <class D, class S>
uint64_t clamped_lane(uint64_t v) {
  return static_cast<uint64_t>(clamped_to<D, S>(static_cast<S>(v)));
}
template <class D, class S>
void saturate(Warp& w, const Inst& i, uint32_t exec) {
  clamped(w, i, exec, sizeof(S) == 8, sizeof(D) == 8, clamped_lane<D, S>);
}
Handler saturating(Type d, Type s) {
  if (is_bits(d)) return nullptr;
  return with_integer(d, [s](auto result) {
    using D = decltype(result);
    return with_integer(s, [](auto value) -> Handler { return saturate<D, decltype(value)>; });
  });
}

template <class S>
Handler float_to_narrow(Type d, Round r) {
  if (is_bits(d)) return nullptr;
  return with_integer(d, [r](auto result) -> Handler {
    using D = decltype(result);
    if constexpr (sizeof(D) < 4)
      return float_int_round<D, S>(r);
    else
      return nullptr;
  });
}
Handler to_narrow(const Form& f) {
  return with_real_source(
      f, [&](auto source) { return float_to_narrow<decltype(source)>(f.types[0], f.round); });
}

template <class H, class S>
Handler half_round(Round r) {
  return find_handler(r, {{Round::rn, half_steps<H, S, Round::rn>},
                          {Round::rz, half_steps<H, S, Round::rz>},
                          {Round::rm, half_steps<H, S, Round::rm>},
                          {Round::rp, half_steps<H, S, Round::rp>}});
}
template <class H, Round R>
void half_whole(Warp& w, const Inst& i, uint32_t exec) {
  unary<uint32_t, uint32_t>(w, i, exec, [](uint32_t a) {
    return H::round(static_cast<float>(to_whole<R>(H::load(a & 0xFFFFu))));
  });
}
template <class H>
Handler half_same(const Form& f) {
  if (f.has(~0ull)) return nullptr;
  return find_handler(f.round, {{Round::rni, half_whole<H, Round::rni>},
                                {Round::rzi, half_whole<H, Round::rzi>},
                                {Round::rmi, half_whole<H, Round::rmi>},
                                {Round::rpi, half_whole<H, Round::rpi>}});
}
template <class H, class Other>
Handler to_half(const Form& f, Type other) {
  const Type s = f.types[1];
  if (s == f.types[0]) return half_same<H>(f);
  if (f.has(~0ull)) return nullptr;
  if (s == other) return half_round<H, Other>(f.round);
  if (s == Type::f64) return half_round<H, AsF64>(f.round);
  if (is_bits(s)) return nullptr;
  return with_integer(s, [&f](auto value) -> Handler {
    using S = decltype(value);
    if constexpr (sizeof(S) < 8)
      return half_round<H, AsInt<S>>(f.round);
    else
      return nullptr;
  });
}

}  // namespace

Handler resolve_convert_rare(const Form& f) {
  const Type d = f.types[0], s = f.types[1];
  if (is_integer(d) && is_integer(s)) {
    const bool known = f.round == Round::none && f.has(kSat) && !f.has(kFtz | kRelu);
    return known ? saturating(d, s) : nullptr;
  }
  if (is_integer(d)) return to_narrow(f);
  if (d == Type::f16) return to_half<F16, AsBf16>(f, Type::bf16);
  return d == Type::bf16 ? to_half<Bf16, AsF16>(f, Type::f16) : nullptr;
}

}  // namespace sim::SIM_ISA
