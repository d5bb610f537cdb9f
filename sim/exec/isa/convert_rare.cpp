// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Conversions that kernels hardly use: saturating ones between integers, floats to 8 and 16 bits,
// and to 16-bit floats from anything but f32.
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
template <class D>
Handler saturating_from(Type s) {
  switch (s) {
    case Type::u8:
    case Type::b8:
      return saturate<D, uint8_t>;
    case Type::s8:
      return saturate<D, int8_t>;
    case Type::u16:
    case Type::b16:
      return saturate<D, uint16_t>;
    case Type::s16:
      return saturate<D, int16_t>;
    case Type::u32:
    case Type::b32:
      return saturate<D, uint32_t>;
    case Type::s32:
      return saturate<D, int32_t>;
    case Type::u64:
    case Type::b64:
      return saturate<D, uint64_t>;
    case Type::s64:
      return saturate<D, int64_t>;
    default:
      return nullptr;
  }
}
Handler saturating(Type d, Type s) {
  switch (d) {
    case Type::u8:
      return saturating_from<uint8_t>(s);
    case Type::s8:
      return saturating_from<int8_t>(s);
    case Type::u16:
      return saturating_from<uint16_t>(s);
    case Type::s16:
      return saturating_from<int16_t>(s);
    case Type::u32:
      return saturating_from<uint32_t>(s);
    case Type::s32:
      return saturating_from<int32_t>(s);
    case Type::u64:
      return saturating_from<uint64_t>(s);
    case Type::s64:
      return saturating_from<int64_t>(s);
    default:
      return nullptr;
  }
}

template <class S>
Handler float_to_narrow(Type d, Round r) {
  switch (d) {
    case Type::u8:
      return float_int_round<uint8_t, S>(r);
    case Type::s8:
      return float_int_round<int8_t, S>(r);
    case Type::u16:
      return float_int_round<uint16_t, S>(r);
    case Type::s16:
      return float_int_round<int16_t, S>(r);
    default:
      return nullptr;
  }
}
Handler to_narrow(const Form& f) {
  const Type d = f.types[0];
  switch (f.types[1]) {
    case Type::f32:
      return f.has(kFtz) ? float_to_narrow<AsF32Ftz>(d, f.round)
                         : float_to_narrow<AsF32>(d, f.round);
    case Type::f64:
      return float_to_narrow<AsF64>(d, f.round);
    case Type::f16:
      return float_to_narrow<AsF16>(d, f.round);
    case Type::bf16:
      return float_to_narrow<AsBf16>(d, f.round);
    default:
      return nullptr;
  }
}

template <class H, class S>
Handler half_round(Round r) {
  switch (r) {
    case Round::rn:
      return half_steps<H, S, Round::rn>;
    case Round::rz:
      return half_steps<H, S, Round::rz>;
    case Round::rm:
      return half_steps<H, S, Round::rm>;
    case Round::rp:
      return half_steps<H, S, Round::rp>;
    default:
      return nullptr;
  }
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
  switch (f.round) {
    case Round::rni:
      return half_whole<H, Round::rni>;
    case Round::rzi:
      return half_whole<H, Round::rzi>;
    case Round::rmi:
      return half_whole<H, Round::rmi>;
    case Round::rpi:
      return half_whole<H, Round::rpi>;
    default:
      return nullptr;
  }
}
template <class H, class Other>
Handler to_half(const Form& f, Type other) {
  const Type s = f.types[1];
  if (s == f.types[0]) return half_same<H>(f);
  if (f.has(~0ull)) return nullptr;
  if (s == other) return half_round<H, Other>(f.round);
  switch (s) {
    case Type::f64:
      return half_round<H, AsF64>(f.round);
    case Type::u8:
      return half_round<H, AsInt<uint8_t>>(f.round);
    case Type::s8:
      return half_round<H, AsInt<int8_t>>(f.round);
    case Type::u16:
      return half_round<H, AsInt<uint16_t>>(f.round);
    case Type::s16:
      return half_round<H, AsInt<int16_t>>(f.round);
    case Type::u32:
      return half_round<H, AsInt<uint32_t>>(f.round);
    case Type::s32:
      return half_round<H, AsInt<int32_t>>(f.round);
    default:
      return nullptr;
  }
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
