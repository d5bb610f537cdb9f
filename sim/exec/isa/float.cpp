// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles f32 and f64 arithmetic, bit exact in every rounding mode.
#include "sim/exec/isa/real.h"

namespace sim::SIM_ISA {
namespace {

struct Add {
  template <class F>
  static SIM_INLINE F of(F a, F b) {
    return a + b;
  }
};
struct Sub {
  template <class F>
  static SIM_INLINE F of(F a, F b) {
    return a - b;
  }
};
struct Mul {
  template <class F>
  static SIM_INLINE F of(F a, F b) {
    return a * b;
  }
};
struct Div {
  template <class F>
  static SIM_INLINE F of(F a, F b) {
    return a / b;
  }
};
struct Fma {
  static SIM_INLINE float of(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
  static SIM_INLINE double of(double a, double b, double c) { return __builtin_fma(a, b, c); }
};
struct Rcp {
  template <class F>
  static SIM_INLINE F of(F a) {
    return F(1) / a;
  }
};
struct Sqrt {
  static SIM_INLINE float of(float a) { return __builtin_sqrtf(a); }
  static SIM_INLINE double of(double a) { return __builtin_sqrt(a); }
};

template <class F, bool Ftz>
SIM_INLINE F in(F x) {
  return Ftz ? flush(x) : x;
}
template <class F, bool Ftz>
SIM_INLINE F out(F x) {
  return Ftz ? flush(canonical(x)) : canonical(x);
}

template <class O, class F, bool Ftz>
__attribute__((noinline)) void two(Warp& w, const Inst& i, uint32_t exec) {
  binary<F, F, F>(
      w, i, exec, [](F a, F b) __attribute__((always_inline)) {
        return out<F, Ftz>(O::of(in<F, Ftz>(a), in<F, Ftz>(b)));
      });
}
template <class O, class F, bool Ftz>
__attribute__((noinline)) void three(Warp& w, const Inst& i, uint32_t exec) {
  ternary<F, F, F, F>(
      w, i, exec, [](F a, F b, F c) __attribute__((always_inline)) {
        return out<F, Ftz>(O::of(in<F, Ftz>(a), in<F, Ftz>(b), in<F, Ftz>(c)));
      });
}
template <class O, class F, bool Ftz>
__attribute__((noinline)) void one(Warp& w, const Inst& i, uint32_t exec) {
  unary<F, F>(
      w, i, exec,
      [](F a) __attribute__((always_inline)) { return out<F, Ftz>(O::of(in<F, Ftz>(a))); });
}

// By rounding and saturation.
template <Handler Nearest>
Handler saturating(Round r, bool sat) {
  if (!sat) return by_mode<Nearest>(r);
  return r == Round::rz   ? SIM_RARE(then_saturated<in_mode<Nearest, Round::rz>, float>)
         : r == Round::rm ? SIM_RARE(then_saturated<in_mode<Nearest, Round::rm>, float>)
         : r == Round::rp ? SIM_RARE(then_saturated<in_mode<Nearest, Round::rp>, float>)
                          : SIM_RARE(then_saturated<Nearest, float>);
}
#define SIM_F32(SHAPE, O) \
  (ftz ? saturating<SHAPE<O, float, true>>(r, sat) : saturating<SHAPE<O, float, false>>(r, sat))
#define SIM_F32_PLAIN(SHAPE, O) \
  (ftz ? by_mode<SHAPE<O, float, true>>(r) : by_mode<SHAPE<O, float, false>>(r))
#define SIM_F64(SHAPE, O) by_mode<SHAPE<O, double, false>>(r)

template <class F>
struct BitsOf;
template <>
struct BitsOf<float> {
  using type = uint32_t;
  static constexpr uint32_t sign = 1u << 31;
};
template <>
struct BitsOf<double> {
  using type = uint64_t;
  static constexpr uint64_t sign = 1ull << 63;
};
template <class F>
SIM_INLINE F from_bits(typename BitsOf<F>::type b) {
  return __builtin_bit_cast(F, b);
}

template <class F, bool Ftz, bool Negate>
void sign_op(Warp& w, const Inst& i, uint32_t exec) {
  unary<F, F>(
      w, i, exec, [](F a) __attribute__((always_inline)) {
        const auto b = bits_of(in<F, Ftz>(a));
        return from_bits<F>(Negate ? b ^ BitsOf<F>::sign : b & ~BitsOf<F>::sign);
      });
}

// A NaN loses against a number, or wins with .NaN; -0 is less than +0.
template <class F, bool Max, bool Ftz, bool Nan, bool Xorsign>
void extreme(Warp& w, const Inst& i, uint32_t exec) {
  binary<F, F, F>(
      w, i, exec, [](F a, F b) __attribute__((always_inline)) {
        a = in<F, Ftz>(a);
        b = in<F, Ftz>(b);
        const auto sign = (bits_of(a) ^ bits_of(b)) & BitsOf<F>::sign;
        if (Xorsign) {
          a = from_bits<F>(bits_of(a) & ~BitsOf<F>::sign);
          b = from_bits<F>(bits_of(b) & ~BitsOf<F>::sign);
        }
        const F ordered = Max ? (a > b ? a : b) : (a < b ? a : b);
        const F equal = from_bits<F>(Max ? bits_of(a) & bits_of(b) : bits_of(a) | bits_of(b));
        F r = a == b ? equal : ordered;
        if (Nan) {
          r = a != a ? a : b != b ? b : r;
        } else {
          r = a != a ? b : b != b ? a : r;
        }
        r = canonical(r);
        if (Xorsign) r = r == r ? from_bits<F>(bits_of(r) | sign) : r;
        return r;
      });
}

// d: the magnitude of b with the sign of a.
template <class F>
void copysign_(Warp& w, const Inst& i, uint32_t exec) {
  binary<F, F, F>(
      w, i, exec, [](F a, F b) __attribute__((always_inline)) {
        return from_bits<F>((bits_of(a) & BitsOf<F>::sign) | (bits_of(b) & ~BitsOf<F>::sign));
      });
}

template <bool Max>
Handler resolve_extreme(const Form& f) {
  const bool ftz = f.has(kFtz), nan = f.has(kNanMod), x = f.has(kXorsign);
  if (f.type() == Type::f64) {
    return f.has(~0ull) ? nullptr : extreme<double, Max, false, false, false>;
  }
  if (x) {
    if (ftz)
      return nan ? SIM_RARE(extreme<float, Max, true, true, true>)
                 : SIM_RARE(extreme<float, Max, true, false, true>);
    return nan ? SIM_RARE(extreme<float, Max, false, true, true>)
               : SIM_RARE(extreme<float, Max, false, false, true>);
  }
  if (ftz)
    return nan ? SIM_RARE(extreme<float, Max, true, true, false>)
               : extreme<float, Max, true, false, false>;
  return nan ? SIM_RARE(extreme<float, Max, false, true, false>)
             : extreme<float, Max, false, false, false>;
}

}  // namespace

Handler resolve_float(const Form& f) {
  const bool wide = f.type() == Type::f64;
  if (!wide && f.type() != Type::f32) return nullptr;
  if (f.has(kRelu | kCc | kApprox | kFull) || f.type_count != 1) return nullptr;
  const bool ftz = f.has(kFtz), sat = f.has(kSat);
  if (wide && (ftz || sat)) return nullptr;
  const Round r = f.round;
  if (r > Round::rp) return nullptr;
  const bool rounded = r != Round::none;
  switch (f.op) {
    case Op::add:
      return wide ? SIM_F64(two, Add) : SIM_F32(two, Add);
    case Op::sub:
      return wide ? SIM_F64(two, Sub) : SIM_F32(two, Sub);
    case Op::mul:
      if (f.has(kHi | kLo | kWide)) return nullptr;
      return wide ? SIM_F64(two, Mul) : SIM_F32(two, Mul);
    case Op::fma:
    case Op::mad:
      if (!rounded || f.has(kHi | kLo | kWide)) return nullptr;
      return wide ? SIM_F64(three, Fma) : SIM_F32(three, Fma);
    case Op::div:
      if (!rounded || sat) return nullptr;
      return wide ? SIM_F64(two, Div) : SIM_F32_PLAIN(two, Div);
    case Op::rcp:
      if (!rounded || sat) return nullptr;
      return wide ? SIM_F64(one, Rcp) : SIM_F32_PLAIN(one, Rcp);
    case Op::sqrt:
      if (!rounded || sat) return nullptr;
      return wide ? SIM_F64(one, Sqrt) : SIM_F32_PLAIN(one, Sqrt);
    case Op::neg:
      if (wide) return sign_op<double, false, true>;
      return ftz ? sign_op<float, true, true> : sign_op<float, false, true>;
    case Op::abs:
      if (wide) return sign_op<double, false, false>;
      return ftz ? sign_op<float, true, false> : sign_op<float, false, false>;
    case Op::min:
      return resolve_extreme<false>(f);
    case Op::max:
      return resolve_extreme<true>(f);
    case Op::copysign:
      return wide ? copysign_<double> : copysign_<float>;
    default:
      return nullptr;
  }
}

}  // namespace sim::SIM_ISA
