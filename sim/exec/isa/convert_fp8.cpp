// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles cvt to and from the formats of matrix units: tf32, fp8 pairs; and cvt.pack.
#include "sim/exec/isa/convert.h"

namespace sim::SIM_ISA {
namespace {

// ---- tf32: ten fraction bits; ties away or to even, or cut.
template <Round R, bool Relu>
void to_tf32(Warp& w, const Inst& i, uint32_t exec) {
  unary<uint32_t, uint32_t>(w, i, exec, [](uint32_t b) {
    if ((b & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FFFFFFFu;
    if (Relu && b >> 31) return 0u;
    if ((b & 0x7F800000u) == 0x7F800000u) return b;
    const uint32_t half = R == Round::rz ? 0u : R == Round::rn ? 0xFFFu + (b >> 13 & 1u) : 0x1000u;
    return (b + half) & 0xFFFFE000u;
  });
}
template <Round R>
Handler tf32_mods(const Form& f) {
  return f.has(kRelu) ? to_tf32<R, true> : to_tf32<R, false>;
}
Handler resolve_tf32(const Form& f) {
  if (f.has(~static_cast<uint64_t>(kRelu))) return nullptr;
  if (f.round == Round::rna) return f.has(kRelu) ? nullptr : to_tf32<Round::rna, false>;
  if (f.round == Round::rn) return tf32_mods<Round::rn>(f);
  return f.round == Round::rz ? tf32_mods<Round::rz>(f) : nullptr;
}

// ---- fp8 pairs. Man: fraction bits; the largest finite magnitude is Max.
template <int Man, uint32_t Max>
SIM_INLINE uint32_t to_fp8(float x) {
  constexpr int bias = Man == 3 ? 7 : 15;
  const uint32_t b = bits_of(x), sign = b >> 24 & 0x80u, m = b & 0x7FFFFFFFu;
  if (m > 0x7F800000u) return 0x7Fu;
  // The least normal, below which a fixed last place holds.
  constexpr uint32_t least = static_cast<uint32_t>(127 - bias + 1) << 23;
  const float grid = float_of(static_cast<uint32_t>(127 + 23 - bias + 1 - Man) << 23);
  const uint32_t small = bits_of(float_of(m) + grid) - bits_of(grid);
  const uint32_t shift = 23 - Man;
  const uint32_t normal = (m - (static_cast<uint32_t>(127 - bias) << 23) +
                           ((1u << (shift - 1)) - 1) + (m >> shift & 1u)) >>
                          shift;
  uint32_t r = m < least ? small : normal;
  r = m >= 0x7F800000u || r > Max ? Max : r;
  return r | sign;
}
template <int Man>
SIM_INLINE uint32_t fp8_to_f16(uint32_t v) {
  if (Man == 2) return (v & 0x7Fu) > 0x7Cu ? 0x7FFFu : v << 8;  // the same exponents
  if ((v & 0x7Fu) == 0x7Fu) return 0x7FFFu;
  const float x = float_of((v & 0x7Fu) << 20) * float_of(0x7B800000u);  // times 2^120
  return to_f16_rn(x) | (v & 0x80u) << 8;
}
template <int Man, uint32_t Max, bool Relu>
void to_fp8_pair(Warp& w, const Inst& i, uint32_t exec) {
  binary<uint32_t, float, float>(w, i, exec, [](float a, float b) {
    const auto one = [](float x) {
      const uint32_t r = to_fp8<Man, Max>(x);
      return Relu && (r & 0x80u) && x == x ? 0u : r;
    };
    return one(a) << 8 | one(b);
  });
}
template <int Man, uint32_t Max, bool Relu>
void f16_to_fp8_pair(Warp& w, const Inst& i, uint32_t exec) {
  unary<uint32_t, uint32_t>(w, i, exec, [](uint32_t a) {
    const auto one = [](uint32_t h) {
      const float x = from_f16(h);
      const uint32_t r = to_fp8<Man, Max>(x);
      return Relu && (r & 0x80u) && x == x ? 0u : r;
    };
    return one(a >> 16) << 8 | one(a & 0xFFFFu);
  });
}
template <int Man, bool Relu>
void fp8_pair_to_f16(Warp& w, const Inst& i, uint32_t exec) {
  unary<uint32_t, uint32_t>(w, i, exec, [](uint32_t a) {
    uint32_t low = fp8_to_f16<Man>(a & 255u), high = fp8_to_f16<Man>(a >> 8 & 255u);
    if (Relu && (low & 0x8000u)) low = 0;
    if (Relu && (high & 0x8000u)) high = 0;
    return high << 16 | low;
  });
}
template <int Man, uint32_t Max>
Handler fp8(const Form& f, Type s) {
  if (!f.has(kSatfinite) || f.round != Round::rn) return nullptr;
  if (s == Type::f32)
    return f.has(kRelu) ? to_fp8_pair<Man, Max, true> : to_fp8_pair<Man, Max, false>;
  if (s == Type::f16x2)
    return f.has(kRelu) ? f16_to_fp8_pair<Man, Max, true> : f16_to_fp8_pair<Man, Max, false>;
  return nullptr;
}

// cvt.pack.sat: b lowest, then a, then what c brings.
template <class D>
void pack_sat(Warp& w, const Inst& i, uint32_t exec) {
  ternary<uint32_t, int32_t, int32_t, uint32_t>(w, i, exec, [](int32_t a, int32_t b, uint32_t c) {
    constexpr int n = sizeof(D) * 8;
    constexpr uint32_t mask = n == 16 ? 0xFFFFu : 0xFFu;
    const uint32_t low = static_cast<uint32_t>(clamped_to<D, int32_t>(b)) & mask;
    const uint32_t high = static_cast<uint32_t>(clamped_to<D, int32_t>(a)) & mask;
    return n == 16 ? high << 16 | low : c << 16 | high << 8 | low;
  });
}
Handler resolve_pack(const Form& f) {
  if (!f.has(kSat) || f.types[1] != Type::s32) return nullptr;
  switch (f.types[0]) {
    case Type::s8:
      return pack_sat<int8_t>;
    case Type::u8:
      return pack_sat<uint8_t>;
    case Type::s16:
      return pack_sat<int16_t>;
    case Type::u16:
      return pack_sat<uint16_t>;
    default:
      return nullptr;
  }
}
template <int Man>
Handler fp8_to_half(const Form& f) {
  return f.has(kRelu) ? fp8_pair_to_f16<Man, true> : fp8_pair_to_f16<Man, false>;
}

}  // namespace

Handler resolve_convert_fp8(const Form& f) {
  if (f.has(kPackMod)) return resolve_pack(f);
  const Type s = f.types[1];
  switch (f.types[0]) {
    case Type::f16x2:
      if (s == Type::e4m3x2) return fp8_to_half<3>(f);
      return s == Type::e5m2x2 ? fp8_to_half<2>(f) : nullptr;
    case Type::tf32:
      return s == Type::f32 ? resolve_tf32(f) : nullptr;
    case Type::e4m3x2:
      return fp8<3, 0x7E>(f, s);
    case Type::e5m2x2:
      return fp8<2, 0x7B>(f, s);
    default:
      return nullptr;
  }
}

}  // namespace sim::SIM_ISA
