// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Conversions that kernels hardly use: saturating ones between integers, floats to 8 and 16 bits,
// and to 16-bit floats from anything but f32.
#include "sim/exec/isa/convert_half.h"

namespace sim::SIM_ISA {
namespace {

Handler saturating(Type d, Type s) {
  switch (d) {
    case Type::u8:
      return from_int<uint8_t, true>(s);
    case Type::s8:
      return from_int<int8_t, true>(s);
    case Type::u16:
      return from_int<uint16_t, true>(s);
    case Type::s16:
      return from_int<int16_t, true>(s);
    case Type::u32:
      return from_int<uint32_t, true>(s);
    case Type::s32:
      return from_int<int32_t, true>(s);
    case Type::u64:
      return from_int<uint64_t, true>(s);
    case Type::s64:
      return from_int<int64_t, true>(s);
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
      return to_half_one<H, S, Round::rn, false, false>;
    case Round::rz:
      return to_half_one<H, S, Round::rz, false, false>;
    case Round::rm:
      return to_half_one<H, S, Round::rm, false, false>;
    case Round::rp:
      return to_half_one<H, S, Round::rp, false, false>;
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
