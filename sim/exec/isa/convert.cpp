// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// cvt: between all types, in all rounding modes.
#include "sim/exec/isa/real.h"

namespace sim::SIM_ISA {
namespace {

template <class T>
constexpr bool kIsFloat = false;
template <>
constexpr bool kIsFloat<float> = true;
template <>
constexpr bool kIsFloat<double> = true;

// ---- Integer to integer. imm cuts the result to its register.
template <class D, class S, bool Sat>
SIM_INLINE D to_integer(S v) {
  if constexpr (Sat) {
    using Big = __int128;
    const Big low = D(-1) < D(0) ? -(Big(1) << (sizeof(D) * 8 - 1)) : Big(0);
    const Big high =
        D(-1) < D(0) ? (Big(1) << (sizeof(D) * 8 - 1)) - 1 : (Big(1) << (sizeof(D) * 8)) - 1;
    const Big x = v;
    return static_cast<D>(x < low ? low : x > high ? high : x);
  } else {
    return static_cast<D>(v);
  }
}
template <class D, class S, bool Sat>
void int_int(Warp& w, const Inst& i, uint32_t exec) {
  if constexpr (sizeof(D) == 8) {
    unary<D, S>(w, i, exec, [](S a) { return to_integer<D, S, Sat>(a); });
  } else {
    const auto cut = static_cast<uint32_t>(i.imm);
    unary<uint32_t, S>(
        w, i, exec, [cut](S a) { return static_cast<uint32_t>(to_integer<D, S, Sat>(a)) & cut; });
  }
}
template <class D, bool Sat>
Handler from_int(Type s) {
  switch (s) {
    case Type::u8:
    case Type::b8:
      return int_int<D, uint8_t, Sat>;
    case Type::s8:
      return int_int<D, int8_t, Sat>;
    case Type::u16:
    case Type::b16:
      return int_int<D, uint16_t, Sat>;
    case Type::s16:
      return int_int<D, int16_t, Sat>;
    case Type::u32:
    case Type::b32:
      return int_int<D, uint32_t, Sat>;
    case Type::s32:
      return int_int<D, int32_t, Sat>;
    case Type::u64:
    case Type::b64:
      return int_int<D, uint64_t, Sat>;
    case Type::s64:
      return int_int<D, int64_t, Sat>;
    default:
      return nullptr;
  }
}
template <bool Sat>
Handler int_to_int(Type d, Type s) {
  switch (d) {
    case Type::u8:
      return from_int<uint8_t, Sat>(s);
    case Type::s8:
      return from_int<int8_t, Sat>(s);
    case Type::u16:
      return from_int<uint16_t, Sat>(s);
    case Type::s16:
      return from_int<int16_t, Sat>(s);
    case Type::u32:
      return from_int<uint32_t, Sat>(s);
    case Type::s32:
      return from_int<int32_t, Sat>(s);
    case Type::u64:
      return from_int<uint64_t, Sat>(s);
    case Type::s64:
      return from_int<int64_t, Sat>(s);
    default:
      return nullptr;
  }
}

// ---- Float to integer: clamped; NaN gives 0, or 2^63 where 64 bits are involved.
template <Round R>
SIM_INLINE double to_whole(double x) {
  if (R == Round::rzi) return __builtin_trunc(x);
  if (R == Round::rmi) return __builtin_floor(x);
  if (R == Round::rpi) return __builtin_ceil(x);
  return __builtin_nearbyint(x);
}
template <class D, class S>
SIM_INLINE D clamp_to(double x, bool wide) {
  constexpr bool kSign = D(-1) < D(0);
  constexpr double top =
      kSign ? double(1ull << (sizeof(D) * 8 - 1)) : 2.0 * double(1ull << (sizeof(D) * 8 - 1));
  if (x != x) return wide ? D(D(1) << (sizeof(D) * 8 - 1)) : D(0);
  if (x >= top) return D(kSign ? D(~(D(1) << (sizeof(D) * 8 - 1))) : D(~D(0)));
  if (kSign) return x < -top ? D(D(1) << (sizeof(D) * 8 - 1)) : static_cast<D>(x);
  return x <= 0 ? D(0) : static_cast<D>(x);
}
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

template <class D, class S, Round R>
void float_int(Warp& w, const Inst& i, uint32_t exec) {
  using C = typename S::cell;
  constexpr bool wide = sizeof(D) == 8 || sizeof(C) == 8;
  if constexpr (sizeof(D) == 8) {
    unary<D, C>(w, i, exec, [](C a) { return clamp_to<D, C>(to_whole<R>(S::load(a)), wide); });
  } else {
    const auto cut = static_cast<uint32_t>(i.imm);
    unary<uint32_t, C>(w, i, exec, [cut](C a) {
      return static_cast<uint32_t>(clamp_to<D, C>(to_whole<R>(S::load(a)), wide)) & cut;
    });
  }
}
template <class D, class S>
Handler float_int_round(Round r) {
  switch (r) {
    case Round::rni:
      return float_int<D, S, Round::rni>;
    case Round::rzi:
      return float_int<D, S, Round::rzi>;
    case Round::rmi:
      return float_int<D, S, Round::rmi>;
    case Round::rpi:
      return float_int<D, S, Round::rpi>;
    default:
      return nullptr;
  }
}
template <class S>
Handler float_to_int(Type d, Round r) {
  switch (d) {
    case Type::u8:
      return float_int_round<uint8_t, S>(r);
    case Type::s8:
      return float_int_round<int8_t, S>(r);
    case Type::u16:
      return float_int_round<uint16_t, S>(r);
    case Type::s16:
      return float_int_round<int16_t, S>(r);
    case Type::u32:
      return float_int_round<uint32_t, S>(r);
    case Type::s32:
      return float_int_round<int32_t, S>(r);
    case Type::u64:
      return float_int_round<uint64_t, S>(r);
    case Type::s64:
      return float_int_round<int64_t, S>(r);
    default:
      return nullptr;
  }
}

// ---- Results in a float format, from a double or a float. R is the rounding mode.
// A value in a 16-bit format with `keep` fraction bits below which a float is cut.
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
  // One step towards the wanted side where rounding to nearest went to the other.
  const float ax = x < 0 ? -x : x, ab = back < 0 ? -back : back;
  const bool negative = bits_of(x) >> 31;
  const bool up = R == Round::rz ? false : R == Round::rp ? !negative : negative;
  if (up) return ab < ax ? near + 1 : near;
  return ab > ax ? near - 1 : near;
}
// Which way magnitudes go; used for directed conversions of doubles and integers to f32.
template <class D, class S, Round R, bool Ftz, bool Sat>
void to_real(Warp& w, const Inst& i, uint32_t exec) {
  Rounding<R> mode;
  using C = typename S::cell;
  unary<D, C>(
      w, i, exec, [](C a) __attribute__((always_inline)) {
        D v = static_cast<D>(S::load(a));
        if (Sat) v = saturated(v);
        if constexpr (kIsFloat<D>) v = canonical(v);
        return Ftz ? flush(v) : v;
      });
}
template <class T>
struct AsInt {
  using cell = T;
  static SIM_INLINE T load(T v) { return v; }
};

template <class D, class S, bool Ftz, bool Sat>
Handler to_real_round(Round r) {
  switch (r) {
    case Round::rz:
      return to_real<D, S, Round::rz, Ftz, Sat>;
    case Round::rm:
      return to_real<D, S, Round::rm, Ftz, Sat>;
    case Round::rp:
      return to_real<D, S, Round::rp, Ftz, Sat>;
    case Round::rn:
    case Round::none:
      return to_real<D, S, Round::rn, Ftz, Sat>;
    default:
      return nullptr;
  }
}
template <class D, class S>
Handler to_real_mods(const Form& f) {
  const bool ftz = f.has(kFtz), sat = f.has(kSat);
  if (ftz)
    return sat ? to_real_round<D, S, true, true>(f.round)
               : to_real_round<D, S, true, false>(f.round);
  return sat ? to_real_round<D, S, false, true>(f.round)
             : to_real_round<D, S, false, false>(f.round);
}

// f32 to f32 and f64 to f64: to a whole number, or just flushed and clamped.
template <class F, Round R, bool Ftz, bool Sat>
void whole(Warp& w, const Inst& i, uint32_t exec) {
  unary<F, F>(
      w, i, exec, [](F a) __attribute__((always_inline)) {
        F v = Ftz ? flush(a) : a;
        if (R >= Round::rni) v = static_cast<F>(to_whole<R>(v));
        if (Sat) v = saturated(v);
        return canonical(v);
      });
}
template <class F, Round R>
Handler whole_mods(const Form& f) {
  const bool ftz = f.has(kFtz), sat = f.has(kSat);
  if (ftz) return sat ? whole<F, R, true, true> : whole<F, R, true, false>;
  return sat ? whole<F, R, false, true> : whole<F, R, false, false>;
}
template <class F>
Handler same_real(const Form& f) {
  switch (f.round) {
    case Round::rni:
      return whole_mods<F, Round::rni>(f);
    case Round::rzi:
      return whole_mods<F, Round::rzi>(f);
    case Round::rmi:
      return whole_mods<F, Round::rmi>(f);
    case Round::rpi:
      return whole_mods<F, Round::rpi>(f);
    case Round::none:
      return whole_mods<F, Round::none>(f);
    default:
      return nullptr;
  }
}

// ---- To 16-bit floats.
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
// a in the upper half.
template <class H, Round R, bool Relu, bool Satfinite>
void to_half_two(Warp& w, const Inst& i, uint32_t exec) {
  binary<uint32_t, float, float>(
      w, i, exec, [](float a, float b) __attribute__((always_inline)) {
        return adjusted<H, Relu, Satfinite>(to_half<H, R>(a)) << 16 |
               adjusted<H, Relu, Satfinite>(to_half<H, R>(b));
      });
}
template <class H, Round R>
Handler half_two(const Form& f) {
  if (f.has(kSatfinite))
    return f.has(kRelu) ? to_half_two<H, R, true, true> : to_half_two<H, R, false, true>;
  return f.has(kRelu) ? to_half_two<H, R, true, false> : to_half_two<H, R, false, false>;
}
template <class H, class S, Round R>
Handler half_one_mods(const Form& f) {
  if (f.has(kSatfinite))
    return f.has(kRelu) ? to_half_one<H, S, R, true, true> : to_half_one<H, S, R, false, true>;
  return f.has(kRelu) ? to_half_one<H, S, R, true, false> : to_half_one<H, S, R, false, false>;
}
template <class H, class S>
Handler half_one(const Form& f) {
  switch (f.round) {
    case Round::rn:
      return half_one_mods<H, S, Round::rn>(f);
    case Round::rz:
      return half_one_mods<H, S, Round::rz>(f);
    case Round::rm:
      return f.has(kRelu | kSatfinite) ? nullptr : to_half_one<H, S, Round::rm, false, false>;
    case Round::rp:
      return f.has(kRelu | kSatfinite) ? nullptr : to_half_one<H, S, Round::rp, false, false>;
    default:
      return nullptr;
  }
}
template <class H>
Handler to_half_from(const Form& f, Type s) {
  switch (s) {
    case Type::f32:
      return f.has(kFtz | kSat) ? nullptr : half_one<H, AsF32>(f);
    case Type::f64:
      return f.has(kFtz | kSat) ? nullptr : half_one<H, AsF64>(f);
    case Type::f16:
      return half_one<H, AsF16>(f);
    case Type::bf16:
      return half_one<H, AsBf16>(f);
    case Type::u8:
      return half_one<H, AsInt<uint8_t>>(f);
    case Type::s8:
      return half_one<H, AsInt<int8_t>>(f);
    case Type::u16:
      return half_one<H, AsInt<uint16_t>>(f);
    case Type::s16:
      return half_one<H, AsInt<int16_t>>(f);
    case Type::u32:
      return half_one<H, AsInt<uint32_t>>(f);
    case Type::s32:
      return half_one<H, AsInt<int32_t>>(f);
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

template <class D>
Handler to_real_from(const Form& f, Type s) {
  switch (s) {
    case Type::f16:
      return to_real_mods<D, AsF16>(f);
    case Type::bf16:
      return to_real_mods<D, AsBf16>(f);
    case Type::f32:
      return f.has(kFtz) ? to_real_mods<D, AsF32Ftz>(f) : to_real_mods<D, AsF32>(f);
    case Type::f64:
      return to_real_mods<D, AsF64>(f);
    case Type::u8:
      return to_real_mods<D, AsInt<uint8_t>>(f);
    case Type::s8:
      return to_real_mods<D, AsInt<int8_t>>(f);
    case Type::u16:
      return to_real_mods<D, AsInt<uint16_t>>(f);
    case Type::s16:
      return to_real_mods<D, AsInt<int16_t>>(f);
    case Type::u32:
      return to_real_mods<D, AsInt<uint32_t>>(f);
    case Type::s32:
      return to_real_mods<D, AsInt<int32_t>>(f);
    case Type::u64:
      return to_real_mods<D, AsInt<uint64_t>>(f);
    case Type::s64:
      return to_real_mods<D, AsInt<int64_t>>(f);
    default:
      return nullptr;
  }
}

// ---- tf32: ten fraction bits, ties away or to even.
template <bool Even, bool Relu>
void to_tf32(Warp& w, const Inst& i, uint32_t exec) {
  unary<uint32_t, uint32_t>(w, i, exec, [](uint32_t b) {
    if ((b & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FFFFFFFu;
    if (Relu && b >> 31) return 0u;
    if ((b & 0x7F800000u) == 0x7F800000u) return b;
    return (b + (Even ? 0xFFFu + (b >> 13 & 1u) : 0x1000u)) & 0xFFFFE000u;
  });
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
template <class D, bool Signed>
void pack_sat(Warp& w, const Inst& i, uint32_t exec) {
  ternary<uint32_t, int32_t, int32_t, uint32_t>(w, i, exec, [](int32_t a, int32_t b, uint32_t c) {
    constexpr int n = sizeof(D) * 8;
    constexpr uint32_t mask = n == 16 ? 0xFFFFu : 0xFFu;
    const uint32_t low = static_cast<uint32_t>(to_integer<D, int32_t, true>(b)) & mask;
    const uint32_t high = static_cast<uint32_t>(to_integer<D, int32_t, true>(a)) & mask;
    return n == 16 ? high << 16 | low : c << 16 | high << 8 | low;
  });
}
Handler resolve_pack(const Form& f) {
  if (!f.has(kSat) || f.types[1] != Type::s32) return nullptr;
  switch (f.types[0]) {
    case Type::s8:
      return pack_sat<int8_t, true>;
    case Type::u8:
      return pack_sat<uint8_t, false>;
    case Type::s16:
      return pack_sat<int16_t, true>;
    case Type::u16:
      return pack_sat<uint16_t, false>;
    default:
      return nullptr;
  }
}

Handler resolve_half_pair(const Form& f, bool bf16) {
  if (f.round == Round::rn)
    return bf16 ? half_two<Bf16, Round::rn>(f) : half_two<F16, Round::rn>(f);
  if (f.round == Round::rz)
    return bf16 ? half_two<Bf16, Round::rz>(f) : half_two<F16, Round::rz>(f);
  return nullptr;
}

}  // namespace

Handler resolve_convert(const Form& f) {
  if (f.op != Op::cvt) return nullptr;
  if (f.has(kPackMod)) return resolve_pack(f);
  const Type d = f.types[0], s = f.types[1];
  const bool from_int_type = is_integer(s);
  if (is_integer(d) && from_int_type) {
    if (f.round != Round::none || f.has(kFtz | kRelu)) return nullptr;
    return f.has(kSat) ? int_to_int<true>(d, s) : int_to_int<false>(d, s);
  }
  if (is_integer(d)) {
    if (s == Type::f32)
      return f.has(kFtz) ? float_to_int<AsF32Ftz>(d, f.round) : float_to_int<AsF32>(d, f.round);
    if (s == Type::f64) return float_to_int<AsF64>(d, f.round);
    if (s == Type::f16) return float_to_int<AsF16>(d, f.round);
    if (s == Type::bf16) return float_to_int<AsBf16>(d, f.round);
    return nullptr;
  }
  switch (d) {
    case Type::f32:
      if (s == Type::f32) return same_real<float>(f);
      if ((from_int_type || s == Type::f64) && f.round == Round::none) return nullptr;
      return to_real_from<float>(f, s);
    case Type::f64:
      if (s == Type::f64) return same_real<double>(f);
      if (from_int_type && f.round == Round::none) return nullptr;
      return to_real_from<double>(f, s);
    case Type::f16:
      return s == Type::f16 ? half_same<F16>(f) : to_half_from<F16>(f, s);
    case Type::bf16:
      return s == Type::bf16 ? half_same<Bf16>(f) : to_half_from<Bf16>(f, s);
    case Type::f16x2:
      if (s == Type::e4m3x2)
        return f.has(kRelu) ? fp8_pair_to_f16<3, true> : fp8_pair_to_f16<3, false>;
      if (s == Type::e5m2x2)
        return f.has(kRelu) ? fp8_pair_to_f16<2, true> : fp8_pair_to_f16<2, false>;
      return s == Type::f32 ? resolve_half_pair(f, false) : nullptr;
    case Type::bf16x2:
      return s == Type::f32 ? resolve_half_pair(f, true) : nullptr;
    case Type::tf32:
      if (s != Type::f32) return nullptr;
      if (f.round == Round::rna) return to_tf32<false, false>;
      if (f.round == Round::rn) return f.has(kRelu) ? to_tf32<true, true> : to_tf32<true, false>;
      return nullptr;
    case Type::e4m3x2:
      return fp8<3, 0x7E>(f, s);
    case Type::e5m2x2:
      return fp8<2, 0x7B>(f, s);
    default:
      return nullptr;
  }
}

}  // namespace sim::SIM_ISA
