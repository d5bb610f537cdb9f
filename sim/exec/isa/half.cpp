// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles f16, bf16 and their packed pairs. Results are computed exactly in double and
// rounded once.
#include "sim/exec/isa/real.h"

namespace sim::SIM_ISA {
namespace {

template <class H, bool Ftz>
SIM_INLINE uint32_t flushed(uint32_t h) {
  return Ftz && (h & H::inf) == 0 ? h & 0x8000u : h;
}
template <class H, bool Ftz, bool Sat, bool Relu>
SIM_INLINE uint32_t finish(uint32_t h) {
  const bool nan = (h & 0x7FFFu) > H::inf, negative = h & 0x8000u;
  if (Sat) h = nan || negative ? 0u : h > H::one ? H::one : h;
  if (Relu) h = nan ? 0x7FFFu : negative ? 0u : h;
  if (!Sat && !Relu) h = nan ? 0x7FFFu : h;
  return flushed<H, Ftz>(h);
}

struct Add {
  static SIM_INLINE double of(double a, double b) { return sum_to_odd(a, b); }
};
struct Sub {
  static SIM_INLINE double of(double a, double b) { return sum_to_odd(a, -b); }
};
struct Mul {
  static SIM_INLINE double of(double a, double b) { return a * b; }
};

template <class H, class O, bool Ftz, bool Sat>
SIM_INLINE uint32_t two(uint32_t a, uint32_t b) {
  const double x = H::load(flushed<H, Ftz>(a)), y = H::load(flushed<H, Ftz>(b));
  return finish<H, Ftz, Sat, false>(H::round(to_odd(O::of(x, y))));
}
template <class H, bool Ftz, bool Sat, bool Relu>
SIM_INLINE uint32_t fma_(uint32_t a, uint32_t b, uint32_t c) {
  const double x = H::load(flushed<H, Ftz>(a)), y = H::load(flushed<H, Ftz>(b));
  const double z = H::load(flushed<H, Ftz>(c));
  return finish<H, Ftz, Sat, Relu>(H::round(to_odd(sum_to_odd(x * y, z))));
}
template <class H, bool Max, bool Ftz, bool Nan>
SIM_INLINE uint32_t extreme(uint32_t a, uint32_t b) {
  a = flushed<H, Ftz>(a);
  b = flushed<H, Ftz>(b);
  const float x = H::load(a), y = H::load(b);
  const uint32_t ordered = Max ? (x > y ? a : b) : (x < y ? a : b);
  uint32_t r = x == y ? (Max ? a & b : a | b) : ordered;
  if (Nan)
    r = x != x || y != y ? 0x7FFFu : r;
  else
    r = x != x ? b : y != y ? a : r;
  return (r & 0x7FFFu) > H::inf ? 0x7FFFu : r;
}

// F is a type with a static `of` on bits; Pair applies it to both halves.
template <class F, bool Pair>
void apply1(Warp& w, const Inst& i, uint32_t exec) {
  unary<uint32_t, uint32_t>(
      w, i, exec, [](uint32_t a) __attribute__((always_inline)) {
        const uint32_t low = F::of(a & 0xFFFFu);
        return Pair ? low | F::of(a >> 16) << 16 : low;
      });
}
template <class F, bool Pair>
void apply2(Warp& w, const Inst& i, uint32_t exec) {
  binary<uint32_t, uint32_t, uint32_t>(
      w, i, exec, [](uint32_t a, uint32_t b) __attribute__((always_inline)) {
        const uint32_t low = F::of(a & 0xFFFFu, b & 0xFFFFu);
        return Pair ? low | F::of(a >> 16, b >> 16) << 16 : low;
      });
}
template <class F, bool Pair>
void apply3(Warp& w, const Inst& i, uint32_t exec) {
  ternary<uint32_t, uint32_t, uint32_t, uint32_t>(
      w, i, exec, [](uint32_t a, uint32_t b, uint32_t c) __attribute__((always_inline)) {
        const uint32_t low = F::of(a & 0xFFFFu, b & 0xFFFFu, c & 0xFFFFu);
        return Pair ? low | F::of(a >> 16, b >> 16, c >> 16) << 16 : low;
      });
}
// With a modifier: F as a function, so that there is a loop for all of them.
template <bool Pair>
__attribute__((noinline)) void called2(Warp& w, const Inst& i, uint32_t exec,
                                       uint32_t (*f)(uint32_t, uint32_t)) {
  binary<uint32_t, uint32_t, uint32_t>(w, i, exec, [f](uint32_t a, uint32_t b) {
    const uint32_t low = f(a & 0xFFFFu, b & 0xFFFFu);
    return Pair ? low | f(a >> 16, b >> 16) << 16 : low;
  });
}
template <bool Pair>
__attribute__((noinline)) void called3(Warp& w, const Inst& i, uint32_t exec,
                                       uint32_t (*f)(uint32_t, uint32_t, uint32_t)) {
  ternary<uint32_t, uint32_t, uint32_t, uint32_t>(
      w, i, exec, [f](uint32_t a, uint32_t b, uint32_t c) {
        const uint32_t low = f(a & 0xFFFFu, b & 0xFFFFu, c & 0xFFFFu);
        return Pair ? low | f(a >> 16, b >> 16, c >> 16) << 16 : low;
      });
}
template <class F>
uint32_t scalar2(uint32_t a, uint32_t b) {
  return F::of(a, b);
}
template <class F>
uint32_t scalar3(uint32_t a, uint32_t b, uint32_t c) {
  return F::of(a, b, c);
}
template <class F, bool Pair>
void modified2(Warp& w, const Inst& i, uint32_t exec) {
  called2<Pair>(w, i, exec, scalar2<F>);
}
template <class F, bool Pair>
void modified3(Warp& w, const Inst& i, uint32_t exec) {
  called3<Pair>(w, i, exec, scalar3<F>);
}

template <class H, class O, bool Ftz, bool Sat>
struct Two {
  static SIM_INLINE uint32_t of(uint32_t a, uint32_t b) { return two<H, O, Ftz, Sat>(a, b); }
};
template <class H, bool Ftz, bool Sat, bool Relu>
struct Three {
  static SIM_INLINE uint32_t of(uint32_t a, uint32_t b, uint32_t c) {
    return fma_<H, Ftz, Sat, Relu>(a, b, c);
  }
};
template <class H, bool Max, bool Ftz, bool Nan>
struct Extreme {
  static SIM_INLINE uint32_t of(uint32_t a, uint32_t b) { return extreme<H, Max, Ftz, Nan>(a, b); }
};
template <class H, bool Ftz, bool Negate>
struct Sign {
  static SIM_INLINE uint32_t of(uint32_t a) {
    a = flushed<H, Ftz>(a);
    return Negate ? a ^ 0x8000u : a & 0x7FFFu;
  }
};

// bf16 has neither .ftz nor .sat.
template <class H>
constexpr bool kHasFtz = false;
template <>
constexpr bool kHasFtz<F16> = true;

template <class H, class O, bool Pair>
Handler resolve_two(const Form& f) {
  if constexpr (kHasFtz<H>) {
    const bool ftz = f.has(kFtz);
    if (f.has(kSat))
      return ftz ? SIM_RARE(modified2<Two<H, O, true, true>, Pair>)
                 : SIM_RARE(modified2<Two<H, O, false, true>, Pair>);
    if (ftz) return SIM_RARE(modified2<Two<H, O, true, false>, Pair>);
  }
  return apply2<Two<H, O, false, false>, Pair>;
}
template <class H, bool Pair>
Handler resolve_fma(const Form& f) {
  if (f.round != Round::rn) return nullptr;
  if constexpr (kHasFtz<H>) {
    const bool ftz = f.has(kFtz);
    if (f.has(kSat))
      return ftz ? SIM_RARE(modified3<Three<H, true, true, false>, Pair>)
                 : SIM_RARE(modified3<Three<H, false, true, false>, Pair>);
    if (ftz)
      return f.has(kRelu) ? SIM_RARE(modified3<Three<H, true, false, true>, Pair>)
                          : SIM_RARE(modified3<Three<H, true, false, false>, Pair>);
  }
  return f.has(kRelu) ? SIM_RARE(modified3<Three<H, false, false, true>, Pair>)
                      : apply3<Three<H, false, false, false>, Pair>;
}
template <class H, bool Max, bool Pair>
Handler resolve_extreme(const Form& f) {
  if (f.has(kXorsign | kRelu)) return nullptr;
  if constexpr (kHasFtz<H>) {
    if (f.has(kFtz))
      return f.has(kNanMod) ? SIM_RARE(modified2<Extreme<H, Max, true, true>, Pair>)
                            : SIM_RARE(modified2<Extreme<H, Max, true, false>, Pair>);
  }
  return f.has(kNanMod) ? SIM_RARE(modified2<Extreme<H, Max, false, true>, Pair>)
                        : apply2<Extreme<H, Max, false, false>, Pair>;
}
template <class H, bool Negate, bool Pair>
Handler resolve_sign(const Form& f) {
  if constexpr (kHasFtz<H>) {
    if (f.has(kFtz)) return apply1<Sign<H, true, Negate>, Pair>;
  }
  return apply1<Sign<H, false, Negate>, Pair>;
}

template <class H, bool Pair>
Handler resolve_format(const Form& f) {
  if (f.round > Round::rn || (!kHasFtz<H> && f.has(kFtz | kSat))) return nullptr;
  if (f.op == Op::mul && f.has(kHi | kLo | kWide)) return nullptr;
  static constexpr ResolverRow<Op> kRows[] = {
      {Op::add, resolve_two<H, Add, Pair>},       {Op::sub, resolve_two<H, Sub, Pair>},
      {Op::mul, resolve_two<H, Mul, Pair>},       {Op::fma, resolve_fma<H, Pair>},
      {Op::min, resolve_extreme<H, false, Pair>}, {Op::max, resolve_extreme<H, true, Pair>},
      {Op::neg, resolve_sign<H, true, Pair>},     {Op::abs, resolve_sign<H, false, Pair>}};
  return resolve_by(f.op, f, kRows);
}

}  // namespace

Handler resolve_half(const Form& f) {
  if (f.type_count != 1) return nullptr;
  return resolve_by(f.type(), f,
                    {{Type::f16, resolve_format<F16, false>},
                     {Type::f16x2, resolve_format<F16, true>},
                     {Type::bf16, resolve_format<Bf16, false>},
                     {Type::bf16x2, resolve_format<Bf16, true>}});
}

}  // namespace sim::SIM_ISA
