// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles integer arithmetic.
#include "sim/exec/isa/integer.h"

namespace sim::SIM_ISA {
namespace {

SIM_BINARY(add, U<T>(U<T>(a) + U<T>(b)))
SIM_BINARY(sub, U<T>(U<T>(a) - U<T>(b)))
SIM_BINARY(mul_lo, U<T>(uint64_t(a) * uint64_t(b)))
SIM_BINARY(mul_hi, (Wide<T>(a) * Wide<T>(b)) >> kBits<T>)
SIM_TERNARY(mad_lo, U<T>(uint64_t(a) * uint64_t(b) + uint64_t(c)))
SIM_TERNARY(mad_hi, U<T>(U<T>((Wide<T>(a) * Wide<T>(b)) >> kBits<T>) + U<T>(c)))
SIM_BINARY(min_, a < b ? a : b)
SIM_BINARY(max_, a > b ? a : b)
SIM_UNARY(neg, U<T>(0) - U<T>(a))
SIM_UNARY(abs_, a < 0 ? U<T>(U<T>(0) - U<T>(a)) : U<T>(a))
SIM_TERNARY(sad, U<T>(c) + (a < b ? U<T>(U<T>(b) - U<T>(a)) : U<T>(U<T>(a) - U<T>(b))))

// Division by zero gives all ones, the remainder the dividend; the smallest number by -1 wraps.
template <class T>
inline T quotient(T a, T b) {
  if (b == 0) return static_cast<T>(~T(0));
  if (kSigned<T> && b == T(-1)) return static_cast<T>(U<T>(0) - U<T>(a));
  return static_cast<T>(a / b);
}
template <class T>
inline T remainder(T a, T b) {
  if (b == 0) return a;
  if (kSigned<T> && b == T(-1)) return 0;
  return static_cast<T>(a % b);
}
// PTX leaves both open where b is zero.
template <class T>
void look_for_zero(Warp& w, const Inst& i, uint32_t exec) {
  const CellOf<T>* b = cells<T>(w, i.b);
  uint32_t zero = 0;
  for (int l = 0; l < 32; ++l) zero |= get<T>(b[l]) == 0 ? 1u << l : 0u;
  if (!(zero & exec)) return;
  report(w, i, Fault::division_by_zero, static_cast<unsigned>(__builtin_ctz(zero & exec)), 0, 0,
         Space::generic, false);
}
template <class T>
void div_(Warp& w, const Inst& i, uint32_t exec) {
  look_for_zero<T>(w, i, exec);
  binary<T, T, T>(w, i, exec, [](T a, T b) { return quotient<T>(a, b); });
}
template <class T>
void rem_(Warp& w, const Inst& i, uint32_t exec) {
  look_for_zero<T>(w, i, exec);
  binary<T, T, T>(w, i, exec, [](T a, T b) { return remainder<T>(a, b); });
}

template <class T>
void mul_wide(Warp& w, const Inst& i, uint32_t exec) {
  using W = Wide<T>;
  binary<W, T, T>(w, i, exec, [](T a, T b) { return static_cast<W>(W(a) * W(b)); });
}
template <class T>
void mad_wide(Warp& w, const Inst& i, uint32_t exec) {
  using W = Wide<T>;
  using Uw = U<W>;
  ternary<W, T, T, W>(w, i, exec,
                      [](T a, T b, W c) { return static_cast<W>(Uw(W(a) * W(b)) + Uw(c)); });
}

inline int32_t saturate(int64_t v) {
  return v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : static_cast<int32_t>(v);
}
void add_sat(Warp& w, const Inst& i, uint32_t exec) {
  binary<int32_t, int32_t, int32_t>(w, i, exec,
                                    [](int32_t a, int32_t b) { return saturate(int64_t(a) + b); });
}
void sub_sat(Warp& w, const Inst& i, uint32_t exec) {
  binary<int32_t, int32_t, int32_t>(w, i, exec,
                                    [](int32_t a, int32_t b) { return saturate(int64_t(a) - b); });
}
void mad_hi_sat(Warp& w, const Inst& i, uint32_t exec) {
  ternary<int32_t, int32_t, int32_t, int32_t>(w, i, exec, [](int32_t a, int32_t b, int32_t c) {
    return saturate(((int64_t(a) * b) >> 32) + c);
  });
}

template <class T, class F>
inline void halves(Warp& w, const Inst& i, uint32_t exec, F f) {
  binary<uint32_t, uint32_t, uint32_t>(w, i, exec, [f](uint32_t a, uint32_t b) {
    const auto low = uint16_t(f(T(a), T(b))), high = uint16_t(f(T(a >> 16), T(b >> 16)));
    return uint32_t(high) << 16 | low;
  });
}
template <class T>
void add_x2(Warp& w, const Inst& i, uint32_t exec) {
  halves<T>(w, i, exec, [](T a, T b) { return a + b; });
}
template <class T>
void min_x2(Warp& w, const Inst& i, uint32_t exec) {
  halves<T>(w, i, exec, [](T a, T b) { return a < b ? a : b; });
}
template <class T>
void max_x2(Warp& w, const Inst& i, uint32_t exec) {
  halves<T>(w, i, exec, [](T a, T b) { return a > b ? a : b; });
}

// Sums and products with the carry flag, which is a predicate of its own. `Op`: 0 add, 1 sub, 2 mad
// low, 3 mad high.
template <class T, int Operation, bool In, bool Out>
void carry(Warp& w, const Inst& i, uint32_t exec) {
  using W = Wide<T>;
  const CellOf<T>* a = cells<T>(w, i.a);
  const CellOf<T>* b = cells<T>(w, i.b);
  const CellOf<T>* c = Operation >= 2 ? cells<T>(w, i.c) : nullptr;
  const uint32_t flags = w.preds[kPredCarry];
  uint32_t out = flags;
  CellOf<T>* d = cells<T>(w, i.d);
  for (int l = 0; l < 32; ++l) {
    if (!(exec >> l & 1)) continue;
    const W in = In ? (flags >> l & 1) : 0;
    W sum;
    if (Operation == 0) sum = W(a[l]) + W(b[l]) + in;
    if (Operation == 1) sum = W(a[l]) - W(b[l]) - in;
    if (Operation >= 2) {
      const W product = W(a[l]) * W(b[l]);
      sum = W(T(Operation == 2 ? product : product >> kBits<T>)) + W(c[l]) + in;
    }
    if (Out) out = (out & ~(1u << l)) | uint32_t(sum >> kBits<T> & 1) << l;
    d[l] = T(sum);
  }
  w.preds[kPredCarry] = out;
}
template <class T, int Operation>
Handler carry_of(bool in, bool out) {
  if (in) {
    return out ? SIM_RARE(carry<T, Operation, true, true>)
               : SIM_RARE(carry<T, Operation, true, false>);
  }
  return out ? SIM_RARE(carry<T, Operation, false, true>) : nullptr;
}
template <int Operation>
Handler carry_of(Type t, bool in, bool out) {
  const unsigned bytes = type_bytes(t);
  if (bytes == 4) return carry_of<uint32_t, Operation>(in, out);
  if (bytes == 8) return carry_of<uint64_t, Operation>(in, out);
  return nullptr;
}

Handler resolve_arithmetic(const Form& f, Type t) {
  const bool cc = f.has(kCc);
  switch (f.op) {
    case Op::add:
      if (cc) return carry_of<0>(t, false, true);
      if (f.has(kSat)) return t == Type::s32 ? add_sat : nullptr;
      if (t == Type::u16x2 || t == Type::s16x2) return add_x2<uint16_t>;
      return SIM_SIZED(add);
    case Op::addc:
      return carry_of<0>(t, true, cc);
    case Op::sub:
      if (cc) return carry_of<1>(t, false, true);
      if (f.has(kSat)) return t == Type::s32 ? sub_sat : nullptr;
      return SIM_SIZED(sub);
    case Op::subc:
      return carry_of<1>(t, true, cc);
    case Op::mul:
      if (f.has(kWide)) return SIM_NARROW(mul_wide);
      if (f.has(kHi)) return SIM_TYPED(mul_hi);
      return f.has(kLo) ? SIM_SIZED(mul_lo) : nullptr;
    case Op::mad:
      if (cc) return f.has(kHi) ? carry_of<3>(t, false, true) : carry_of<2>(t, false, true);
      if (f.has(kWide)) return SIM_NARROW(mad_wide);
      if (f.has(kSat)) return f.has(kHi) && t == Type::s32 ? mad_hi_sat : nullptr;
      if (f.has(kHi)) return SIM_TYPED(mad_hi);
      return f.has(kLo) ? SIM_SIZED(mad_lo) : nullptr;
    case Op::madc:
      return f.has(kHi) ? carry_of<3>(t, true, cc) : carry_of<2>(t, true, cc);
    case Op::div:
      return SIM_RARE(SIM_TYPED(div_));
    case Op::rem:
      return SIM_RARE(SIM_TYPED(rem_));
    case Op::abs:
      return SIM_SIGNED(abs_);
    case Op::neg:
      return SIM_SIGNED(neg);
    case Op::min:
      if (t == Type::u16x2) return min_x2<uint16_t>;
      if (t == Type::s16x2) return min_x2<int16_t>;
      return SIM_TYPED(min_);
    case Op::max:
      if (t == Type::u16x2) return max_x2<uint16_t>;
      if (t == Type::s16x2) return max_x2<int16_t>;
      return SIM_TYPED(max_);
    case Op::sad:
      return SIM_RARE(SIM_TYPED(sad));
    default:
      return nullptr;
  }
}

}  // namespace

Handler resolve_integer(const Form& f) {
  if (f.type() != Type::pred && f.round != Round::none) return nullptr;
  if (Handler h = resolve_bytes(f)) return h;
  if (Handler h = resolve_bits(f)) return h;
  return is_float(f.type()) || f.type() == Type::pred ? nullptr : resolve_arithmetic(f, f.type());
}

}  // namespace sim::SIM_ISA
