// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles the approximate instructions: polynomials in double whose error is below 1e-11,
// rounded once to f32, so the result is the correctly rounded one but for about one case in 10^4,
// one ulp off.
#include <cmath>

#include "sim/exec/isa/real.h"

namespace sim::SIM_ISA {
namespace {

// Horner's scheme, from the coefficient of the highest power down.
template <class... Rest>
SIM_INLINE double polynomial(double x, double highest, Rest... rest) {
  double p = highest;
  ((p = p * x + rest), ...);
  return p;
}

SIM_INLINE double exp2_of(double x) {
  x = x < -1100.0 ? -1100.0 : x > 1100.0 ? 1100.0 : x;
  const double shifted = x + 6755399441055744.0;  // 1.5 * 2^52: the whole part in the low bits
  const double n = shifted - 6755399441055744.0;
  const double f = (x - n) * 0.693147180559945309417;  // |f| <= ln 2 / 2
  const double p =
      polynomial(f, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320,
                 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0);
  // Two factors, so that neither leaves the range of normal numbers.
  const auto exponent = static_cast<int32_t>(static_cast<uint32_t>(bits_of(shifted)));
  const int32_t half = exponent >> 1;
  const double s1 = double_of(static_cast<uint64_t>(1023 + half) << 52);
  const double s2 = double_of(static_cast<uint64_t>(1023 + exponent - half) << 52);
  return p * s1 * s2;
}

// Base 2, for positive finite x.
SIM_INLINE double log2_of(double x) {
  const uint64_t b = bits_of(x);
  // The fraction between sqrt(1/2) and sqrt(2).
  const uint64_t shifted = b - 0x3FE6A09E667F3BCDull;
  const auto e = static_cast<int64_t>(shifted) >> 52;
  const double m = double_of(b - (static_cast<uint64_t>(e) << 52));
  const double s = (m - 1.0) / (m + 1.0), z = s * s;
  const double p = polynomial(z, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7,
                              1.0 / 5, 1.0 / 3, 1.0);
  return static_cast<double>(static_cast<int32_t>(e)) + p * s * 2.885390081777926814720;
}

// Quadrants of pi / 2, in three parts; good up to 2^20 quadrants.
template <bool Cosine>
SIM_INLINE double sine_of(double x) {
  const double n = (x * 0.636619772367581343076 + 6755399441055744.0) - 6755399441055744.0;
  double r = x - n * 1.57079632673412561417e+00;
  r = r - n * 6.07710050630396597660e-11;
  r = r - n * 2.02226624879595063154e-21;
  const double z = r * r;
  const double s = polynomial(z, -1.0 / 1307674368000, 1.0 / 6227020800, -1.0 / 39916800,
                              1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6) *
                       z * r +
                   r;
  const double c = polynomial(z, 1.0 / 20922789888000, -1.0 / 87178291200, 1.0 / 479001600,
                              -1.0 / 3628800, 1.0 / 40320, -1.0 / 720, 1.0 / 24, -0.5, 1.0);
  const auto q = static_cast<int32_t>(n) + (Cosine ? 1 : 0);
  const double v = q & 1 ? c : s;
  return q & 2 ? -v : v;
}

SIM_INLINE double tanh_of(double x) {
  // 1 - 2 / (e^2x + 1), and a series where that cancels.
  const double z = x * x;
  const double p = polynomial(z, -1382.0 / 155925, 62.0 / 2835, -17.0 / 315, 2.0 / 15, -1.0 / 3);
  const double small = x + x * z * p;
  const double c = x > 30 ? 30 : x < -30 ? -30 : x;
  const double large = 1.0 - 2.0 / (exp2_of(c * 2.885390081777926814720) + 1.0);
  return z < 0.01 ? small : large;
}

struct Ex2 {
  static SIM_INLINE float of(float x) {
    const float r = static_cast<float>(exp2_of(x));
    return x == x ? r : x;
  }
};
struct Lg2 {
  static SIM_INLINE float of(float x) {
    const double d = x > 0 ? x : 1.0;
    float r = static_cast<float>(log2_of(d));
    const float inf = float_of(0x7F800000u);
    r = x == inf ? inf : r;
    r = x == 0 ? -inf : r;
    return x >= 0 ? r : float_of(0x7FFFFFFFu);
  }
};
struct Rcp {
  static SIM_INLINE float of(float x) { return 1.0f / x; }
};
struct Sqrt {
  static SIM_INLINE float of(float x) { return __builtin_sqrtf(x); }
};
struct Rsqrt {
  static SIM_INLINE float of(float x) {
    return static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(x)));
  }
};
template <bool Cosine>
struct Sine {
  static SIM_INLINE float of(float x) {
    const bool far = !(x < 1e5f && x > -1e5f);
    const double v = sine_of<Cosine>(far ? 0.0 : static_cast<double>(x));
    return far ? float_of(0x7FFFFFFFu) : static_cast<float>(v);
  }
};
struct Tanh {
  static SIM_INLINE float of(float x) {
    const float r = static_cast<float>(tanh_of(x));
    return x == x ? (x == 0 ? x : r) : x;
  }
};

template <class O, bool Ftz>
void approx(Warp& w, const Inst& i, uint32_t exec) {
  unary<float, float>(
      w, i, exec, [](float a) __attribute__((always_inline)) {
        const float v = canonical(O::of(Ftz ? flush(a) : a));
        return Ftz ? flush(v) : v;
      });
}

// sin and cos, with the rare large arguments by the library.
template <bool Cosine, bool Ftz>
void trigonometric(Warp& w, const Inst& i, uint32_t exec) {
  float in[32];
  memcpy(in, cells<float>(w, i.a), sizeof(in));
  approx<Sine<Cosine>, Ftz>(w, i, exec);
  float* d = cells<float>(w, i.d);
  for (int l = 0; l < 32; ++l) {
    const bool far = !(in[l] < 1e5f && in[l] > -1e5f) && in[l] - in[l] == 0;
    if (!far || !(exec >> l & 1)) continue;
    d[l] = static_cast<float>(Cosine ? ::cos(static_cast<double>(in[l]))
                                     : ::sin(static_cast<double>(in[l])));
  }
}

// div.approx: zero for very large divisors; div.full rounds correctly.
template <bool Ftz, bool Full>
void divide(Warp& w, const Inst& i, uint32_t exec) {
  binary<float, float, float>(
      w, i, exec, [](float a, float b) __attribute__((always_inline)) {
        a = Ftz ? flush(a) : a;
        b = Ftz ? flush(b) : b;
        const uint32_t mb = bits_of(b) & 0x7FFFFFFFu, ma = bits_of(a) & 0x7FFFFFFFu;
        float r = a / b;
        const bool huge = !Full && mb > 0x7E800000u && mb < 0x7F800000u;
        const float zero = float_of((bits_of(a) ^ bits_of(b)) & 0x80000000u);
        r = huge ? (ma >= 0x7F800000u ? float_of(0x7FFFFFFFu) : zero) : r;
        r = canonical(r);
        return Ftz ? flush(r) : r;
      });
}

// Halves are rare: lane by lane, O as a function.
__attribute__((noinline)) void halves_called(Warp& w, const Inst& i, uint32_t exec, bool pair,
                                             uint32_t (*f)(uint32_t)) {
  unary<uint32_t, uint32_t>(w, i, exec, [=](uint32_t a) {
    const uint32_t low = f(a & 0xFFFFu);
    return pair ? low | f(a >> 16) << 16 : low;
  });
}
template <class O>
__attribute__((noinline)) float scalar(float x) {
  return O::of(x);
}
template <class H, class O, bool Ftz>
uint32_t half_by(uint32_t h) {
  if (Ftz && (h & H::inf) == 0) h &= 0x8000u;
  const uint32_t r = H::round(scalar<O>(H::load(h)));
  return Ftz && (r & H::inf) == 0 ? r & 0x8000u : r;
}
template <class H, class O, bool Ftz, bool Pair>
void approx_half(Warp& w, const Inst& i, uint32_t exec) {
  halves_called(w, i, exec, Pair, half_by<H, O, Ftz>);
}
template <class O, bool Ftz>
Handler half_of(Type t) {
  return find_handler(t, {{Type::f16, SIM_RARE(approx_half<F16, O, Ftz, false>)},
                          {Type::f16x2, SIM_RARE(approx_half<F16, O, Ftz, true>)},
                          {Type::bf16, SIM_RARE(approx_half<Bf16, O, Ftz, false>)},
                          {Type::bf16x2, SIM_RARE(approx_half<Bf16, O, Ftz, true>)}});
}
template <class O>
Handler resolve_half(const Form& f) {
  return f.has(kFtz) ? half_of<O, true>(f.type()) : half_of<O, false>(f.type());
}

// The top half of the result of a double; the argument's low half is ignored too.
template <bool Root>
void approx_f64(Warp& w, const Inst& i, uint32_t exec) {
  unary<double, double>(w, i, exec, [](double a) {
    uint64_t b = bits_of(a);
    if ((b & 0x7FF0000000000000ull) == 0) b &= 1ull << 63;
    const double x = double_of(b);
    const double r = Root ? 1.0 / __builtin_sqrt(x) : 1.0 / x;
    uint64_t v = bits_of(canonical(r)) & 0xFFFFFFFF00000000ull;
    if ((v & 0x7FF0000000000000ull) == 0) v &= 1ull << 63;
    return double_of(v);
  });
}

template <bool Ftz>
Handler resolve_f32(Op op) {
  static constexpr HandlerRow<Op> kRows[] = {
      {Op::ex2, approx<Ex2, Ftz>},        {Op::lg2, approx<Lg2, Ftz>},
      {Op::rcp, approx<Rcp, Ftz>},        {Op::sqrt, approx<Sqrt, Ftz>},
      {Op::rsqrt, approx<Rsqrt, Ftz>},    {Op::sin, trigonometric<false, Ftz>},
      {Op::cos, trigonometric<true, Ftz>}};
  return find_handler(op, kRows);
}

}  // namespace

Handler resolve_math(const Form& f) {
  const bool ftz = f.has(kFtz);
  if (f.op == Op::div && f.type() == Type::f32 && f.round == Round::none) {
    if (f.has(kFull)) return ftz ? divide<true, true> : divide<false, true>;
    if (f.has(kApprox)) return ftz ? divide<true, false> : divide<false, false>;
    return nullptr;
  }
  if (!f.has(kApprox) || f.round != Round::none) return nullptr;
  if (f.type() == Type::f64) {
    if (f.op == Op::rcp) return ftz ? approx_f64<false> : nullptr;
    return f.op == Op::rsqrt ? approx_f64<true> : nullptr;
  }
  if (is_half(f.type())) {
    if (f.op == Op::ex2) return resolve_half<Ex2>(f);
    return f.op == Op::tanh ? resolve_half<Tanh>(f) : nullptr;
  }
  if (f.type() != Type::f32) return nullptr;
  if (f.op == Op::tanh) return ftz ? nullptr : approx<Tanh, false>;
  return ftz ? resolve_f32<true>(f.op) : resolve_f32<false>(f.op);
}

}  // namespace sim::SIM_ISA
