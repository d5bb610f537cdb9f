// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Integer and logic instructions.
#include "sim/exec/lanes.h"

namespace sim::SIM_ISA {
namespace {

template <class T>
struct Wide;
template <>
struct Wide<uint16_t> {
  using type = uint32_t;
};
template <>
struct Wide<int16_t> {
  using type = int32_t;
};
template <>
struct Wide<uint32_t> {
  using type = uint64_t;
};
template <>
struct Wide<int32_t> {
  using type = int64_t;
};
template <>
struct Wide<uint64_t> {
  using type = unsigned __int128;
};
template <>
struct Wide<int64_t> {
  using type = __int128;
};
template <class T>
struct Unsigned;
template <>
struct Unsigned<uint16_t> {
  using type = uint16_t;
};
template <>
struct Unsigned<int16_t> {
  using type = uint16_t;
};
template <>
struct Unsigned<uint32_t> {
  using type = uint32_t;
};
template <>
struct Unsigned<int32_t> {
  using type = uint32_t;
};
template <>
struct Unsigned<uint64_t> {
  using type = uint64_t;
};
template <>
struct Unsigned<int64_t> {
  using type = uint64_t;
};
template <class T>
using U = typename Unsigned<T>::type;
template <class T>
constexpr int kBits = sizeof(T) * 8;
template <class T>
constexpr bool kSigned = static_cast<T>(-1) < static_cast<T>(0);

#define SIM_OP(NAME, ...)                            \
  template <class T>                                 \
  void NAME(Warp& w, const Inst& i, uint32_t exec) { \
    __VA_ARGS__;                                     \
  }
#define SIM_BINARY(NAME, EXPR) \
  SIM_OP(NAME, binary<T, T, T>(w, i, exec, [](T a, T b) { return static_cast<T>(EXPR); }))
#define SIM_UNARY(NAME, EXPR) \
  SIM_OP(NAME, unary<T, T>(w, i, exec, [](T a) { return static_cast<T>(EXPR); }))
#define SIM_TERNARY(NAME, EXPR) \
  SIM_OP(NAME, ternary<T, T, T, T>(w, i, exec, [](T a, T b, T c) { return static_cast<T>(EXPR); }))

SIM_BINARY(add, U<T>(U<T>(a) + U<T>(b)))
SIM_BINARY(sub, U<T>(U<T>(a) - U<T>(b)))
SIM_BINARY(mul_lo, U<T>(uint64_t(a) * uint64_t(b)))
SIM_BINARY(mul_hi, (typename Wide<T>::type(a) * typename Wide<T>::type(b)) >> kBits<T>)
SIM_TERNARY(mad_lo, U<T>(uint64_t(a) * uint64_t(b) + uint64_t(c)))
SIM_TERNARY(mad_hi, U<T>(U<T>((typename Wide<T>::type(a) * typename Wide<T>::type(b)) >> kBits<T>) +
                         U<T>(c)))
SIM_BINARY(min_, a < b ? a : b)
SIM_BINARY(max_, a > b ? a : b)
SIM_BINARY(and_, a& b)
SIM_BINARY(or_, a | b)
SIM_BINARY(xor_, a ^ b)
SIM_UNARY(not_, ~a)
SIM_UNARY(cnot, a == 0 ? 1 : 0)
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
SIM_BINARY(div_, quotient<T>(a, b))
SIM_BINARY(rem_, remainder<T>(a, b))

template <class T>
void mul_wide(Warp& w, const Inst& i, uint32_t exec) {
  using W = typename Wide<T>::type;
  binary<W, T, T>(w, i, exec, [](T a, T b) { return static_cast<W>(W(a) * W(b)); });
}
template <class T>
void mad_wide(Warp& w, const Inst& i, uint32_t exec) {
  using W = typename Wide<T>::type;
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

// Shifts by the width or more give zero, or the sign.
template <class T>
void shl(Warp& w, const Inst& i, uint32_t exec) {
  binary<T, T, uint32_t>(w, i, exec, [](T a, uint32_t n) {
    return static_cast<T>(n >= kBits<T> ? 0 : U<T>(U<T>(a) << (n & (kBits<T> - 1))));
  });
}
template <class T>
void shr(Warp& w, const Inst& i, uint32_t exec) {
  binary<T, T, uint32_t>(w, i, exec, [](T a, uint32_t n) {
    if (kSigned<T>) return static_cast<T>(a >> (n >= kBits<T> ? kBits<T> - 1 : n));
    return static_cast<T>(n >= kBits<T> ? 0 : a >> (n & (kBits<T> - 1)));
  });
}
template <bool Left, bool Clamp>
void shf(Warp& w, const Inst& i, uint32_t exec) {
  ternary<uint32_t, uint32_t, uint32_t, uint32_t>(
      w, i, exec, [](uint32_t a, uint32_t b, uint32_t c) {
        const uint32_t n = Clamp ? (c < 32 ? c : 32) : c & 31;
        const uint64_t v = uint64_t(b) << 32 | a;
        return static_cast<uint32_t>(Left ? (v << n) >> 32 : v >> n);
      });
}

template <class T>
void popc(Warp& w, const Inst& i, uint32_t exec) {
  unary<uint32_t, T>(w, i, exec, [](T a) { return uint32_t(__builtin_popcountll(a)); });
}
template <class T>
void clz(Warp& w, const Inst& i, uint32_t exec) {
  unary<uint32_t, T>(w, i, exec, [](T a) {
    return uint32_t(a ? __builtin_clzll(a) - (64 - kBits<T>) : kBits<T>);
  });
}
template <class T, bool Shift>
void bfind(Warp& w, const Inst& i, uint32_t exec) {
  unary<uint32_t, T>(w, i, exec, [](T a) {
    const U<T> v = kSigned<T> && a < 0 ? U<T>(~a) : U<T>(a);
    if (v == 0) return 0xFFFFFFFFu;
    const auto bit = uint32_t(63 - __builtin_clzll(v));
    return Shift ? kBits<T> - 1 - bit : bit;
  });
}
template <class T>
void brev(Warp& w, const Inst& i, uint32_t exec) {
  unary<T, T>(w, i, exec, [](T a) {
    uint64_t v = a;
    v = (v >> 1 & 0x5555555555555555ull) | (v & 0x5555555555555555ull) << 1;
    v = (v >> 2 & 0x3333333333333333ull) | (v & 0x3333333333333333ull) << 2;
    v = (v >> 4 & 0x0F0F0F0F0F0F0F0Full) | (v & 0x0F0F0F0F0F0F0F0Full) << 4;
    return static_cast<T>(__builtin_bswap64(v) >> (64 - kBits<T>));
  });
}
// Bits past the top are zero, or the sign of the field's last bit that exists.
template <class T>
void bfe(Warp& w, const Inst& i, uint32_t exec) {
  ternary<T, T, uint32_t, uint32_t>(w, i, exec, [](T a, uint32_t b, uint32_t c) {
    const unsigned pos = b & 255, len = c & 255, msb = kBits<T> - 1;
    if (len == 0) return T(0);
    if (pos > msb) return kSigned<T> && a < 0 ? T(-1) : T(0);
    const U<T> field = U<T>(a) >> pos;
    if (len > msb) return kSigned<T> ? T(a >> pos) : T(field);
    const U<T> mask = U<T>(U<T>(1) << len) - 1;
    const unsigned top = pos + len - 1 < msb ? pos + len - 1 : msb;
    const bool sign = kSigned<T> && (U<T>(a) >> top & 1);
    const unsigned have = msb + 1 - pos < len ? msb + 1 - pos : len;
    const U<T> kept = U<T>(U<T>(1) << (have & msb)) - 1;
    return T(sign ? (field & mask) | (have > msb ? 0 : ~kept) : field & mask);
  });
}
template <class T>
void bfi(Warp& w, const Inst& i, uint32_t exec) {
  const uint32_t* len = cells<uint32_t>(w, static_cast<uint16_t>(i.aux));
  const CellOf<T>* a = cells<T>(w, i.a);
  const CellOf<T>* b = cells<T>(w, i.b);
  const uint32_t* pos = cells<uint32_t>(w, i.c);
  each<T>(w, i.d, exec, [=](int l) {
    const unsigned p = pos[l] & 255, n = len[l] & 255;
    if (n == 0 || p >= kBits<T>) return T(b[l]);
    const T mask = T((n >= kBits<T> ? T(~T(0)) : T((T(1) << (n & (kBits<T> - 1))) - 1)) << p);
    return T((b[l] & ~mask) | ((a[l] << p) & mask));
  });
}
void fns(Warp& w, const Inst& i, uint32_t exec) {
  ternary<uint32_t, uint32_t, uint32_t, int32_t>(
      w, i, exec, [](uint32_t mask, uint32_t base, int32_t offset) -> uint32_t {
        if (base > 31) return 0xFFFFFFFFu;
        if (offset == 0) return mask >> base & 1 ? base : 0xFFFFFFFFu;
        const int step = offset > 0 ? 1 : -1;
        int left = offset > 0 ? offset : -offset;
        for (int at = int(base); at >= 0 && at < 32; at += step) {
          if ((mask >> at & 1) && --left == 0) return uint32_t(at);
        }
        return 0xFFFFFFFFu;
      });
}

template <class A, class B>
void dp4a(Warp& w, const Inst& i, uint32_t exec) {
  ternary<uint32_t, uint32_t, uint32_t, uint32_t>(
      w, i, exec, [](uint32_t a, uint32_t b, uint32_t c) {
        for (int k = 0; k < 4; ++k) {
          c += uint32_t(int32_t(A(a >> (8 * k))) * int32_t(B(b >> (8 * k))));
        }
        return c;
      });
}
template <class A16, class B, bool High>
void dp2a(Warp& w, const Inst& i, uint32_t exec) {
  ternary<uint32_t, uint32_t, uint32_t, uint32_t>(
      w, i, exec, [](uint32_t a, uint32_t b, uint32_t c) {
        for (int k = 0; k < 2; ++k) {
          c += uint32_t(int32_t(A16(a >> (16 * k))) * int32_t(B(b >> (8 * k + (High ? 16 : 0)))));
        }
        return c;
      });
}

void lop3(Warp& w, const Inst& i, uint32_t exec) {
  const auto lut = uint32_t(i.imm);
  ternary<uint32_t, uint32_t, uint32_t, uint32_t>(
      w, i, exec, [lut](uint32_t a, uint32_t b, uint32_t c) {
        uint32_t r = 0;
        for (int k = 0; k < 8; ++k) {
          const uint32_t on = 0u - (lut >> k & 1);
          r |= on & (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
        }
        return r;
      });
}

template <Prmt Mode>
void prmt(Warp& w, const Inst& i, uint32_t exec) {
  ternary<uint32_t, uint32_t, uint32_t, uint32_t>(
      w, i, exec, [](uint32_t a, uint32_t b, uint32_t c) {
        const uint64_t v = uint64_t(b) << 32 | a;
        const uint32_t s = c & 3;
        uint32_t r = 0;
        for (uint32_t k = 0; k < 4; ++k) {
          uint32_t pick = c >> (4 * k) & 15;
          if (Mode == Prmt::f4e) pick = (s + k) & 7;
          if (Mode == Prmt::b4e) pick = (s - k) & 7;
          if (Mode == Prmt::rc8) pick = s;
          if (Mode == Prmt::ecl) pick = s > k ? s : k;
          if (Mode == Prmt::ecr) pick = s < k ? s : k;
          if (Mode == Prmt::rc16) pick = (s & 1) * 2 + (k & 1);
          auto byte = uint32_t(v >> (8 * (pick & 7))) & 255;
          if (pick & 8) byte = byte & 128 ? 255 : 0;
          r |= byte << (8 * k);
        }
        return r;
      });
}

template <bool Wrap>
void bmsk(Warp& w, const Inst& i, uint32_t exec) {
  binary<uint32_t, uint32_t, uint32_t>(w, i, exec, [](uint32_t a, uint32_t b) {
    const uint32_t pos = Wrap ? a & 31 : a, len = Wrap ? b & 31 : b;
    if (pos >= 32 || len == 0) return 0u;
    return static_cast<uint32_t>((len >= 32 ? ~0ull : (1ull << len) - 1) << pos);
  });
}
template <bool Signed, bool Wrap>
void szext(Warp& w, const Inst& i, uint32_t exec) {
  binary<uint32_t, uint32_t, uint32_t>(w, i, exec, [](uint32_t a, uint32_t b) {
    const uint32_t n = Wrap ? b & 31 : b;
    if (n >= 32) return a;
    if (n == 0) return 0u;
    const uint32_t kept = a & ((1u << n) - 1);
    return Signed && (a >> (n - 1) & 1) ? kept | ~((1u << n) - 1) : kept;
  });
}
void vabsdiff4(Warp& w, const Inst& i, uint32_t exec) {
  ternary<uint32_t, uint32_t, uint32_t, uint32_t>(w, i, exec, [](uint32_t a, uint32_t b, uint32_t) {
    uint32_t r = 0;
    for (int k = 0; k < 32; k += 8) {
      const uint32_t x = a >> k & 255, y = b >> k & 255;
      r |= (x > y ? x - y : y - x) << k;
    }
    return r;
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
  using W = typename Wide<T>::type;
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
  if (in) return out ? carry<T, Operation, true, true> : carry<T, Operation, true, false>;
  return out ? carry<T, Operation, false, true> : nullptr;
}
template <int Operation>
Handler carry_of(Type t, bool in, bool out) {
  const unsigned bytes = type_bytes(t);
  if (bytes == 4) return carry_of<uint32_t, Operation>(in, out);
  if (bytes == 8) return carry_of<uint64_t, Operation>(in, out);
  return nullptr;
}

// Predicate logic.
template <int Operation>
void logic_pred(Warp& w, const Inst& i, uint32_t exec) {
  const uint32_t a = pred(w, i.a);
  uint32_t r = ~a;
  if (Operation == 0) r = a & pred(w, i.b);
  if (Operation == 1) r = a | pred(w, i.b);
  if (Operation == 2) r = a ^ pred(w, i.b);
  w.preds[i.d] = (w.preds[i.d] & ~exec) | (r & exec);
}
Handler resolve_pred(Op op) {
  switch (op) {
    case Op::and_:
      return logic_pred<0>;
    case Op::or_:
      return logic_pred<1>;
    case Op::xor_:
      return logic_pred<2>;
    case Op::not_:
      return logic_pred<3>;
    default:
      return nullptr;
  }
}

// Bit patterns: the unsigned type of the size.
#define SIM_BITS(F)           \
  (bytes == 2   ? F<uint16_t> \
   : bytes == 4 ? F<uint32_t> \
   : bytes == 8 ? F<uint64_t> \
                : Handler(nullptr))
#define SIM_TYPED(F)              \
  (t == Type::u16   ? F<uint16_t> \
   : t == Type::s16 ? F<int16_t>  \
   : t == Type::u32 ? F<uint32_t> \
   : t == Type::s32 ? F<int32_t>  \
   : t == Type::u64 ? F<uint64_t> \
   : t == Type::s64 ? F<int64_t>  \
                    : Handler(nullptr))
#define SIM_SIGNED(F)            \
  (t == Type::s16   ? F<int16_t> \
   : t == Type::s32 ? F<int32_t> \
   : t == Type::s64 ? F<int64_t> \
                    : Handler(nullptr))
#define SIM_NARROW(F)             \
  (t == Type::u16   ? F<uint16_t> \
   : t == Type::s16 ? F<int16_t>  \
   : t == Type::u32 ? F<uint32_t> \
   : t == Type::s32 ? F<int32_t>  \
                    : Handler(nullptr))
#define SIM_WORD(F)               \
  (t == Type::u32   ? F<uint32_t> \
   : t == Type::s32 ? F<int32_t>  \
   : t == Type::u64 ? F<uint64_t> \
   : t == Type::s64 ? F<int64_t>  \
                    : Handler(nullptr))

Handler resolve_arithmetic(const Form& f, Type t) {
  const bool cc = f.has(kCc);
  switch (f.op) {
    case Op::add:
      if (cc) return carry_of<0>(t, false, true);
      if (f.has(kSat)) return t == Type::s32 ? add_sat : nullptr;
      if (t == Type::u16x2 || t == Type::s16x2) return add_x2<uint16_t>;
      return SIM_TYPED(add);
    case Op::addc:
      return carry_of<0>(t, true, cc);
    case Op::sub:
      if (cc) return carry_of<1>(t, false, true);
      if (f.has(kSat)) return t == Type::s32 ? sub_sat : nullptr;
      return SIM_TYPED(sub);
    case Op::subc:
      return carry_of<1>(t, true, cc);
    case Op::mul:
      if (f.has(kWide)) return SIM_NARROW(mul_wide);
      if (f.has(kHi)) return SIM_TYPED(mul_hi);
      return f.has(kLo) ? SIM_TYPED(mul_lo) : nullptr;
    case Op::mad:
      if (cc) return f.has(kHi) ? carry_of<3>(t, false, true) : carry_of<2>(t, false, true);
      if (f.has(kWide)) return SIM_NARROW(mad_wide);
      if (f.has(kSat)) return f.has(kHi) && t == Type::s32 ? mad_hi_sat : nullptr;
      if (f.has(kHi)) return SIM_TYPED(mad_hi);
      return f.has(kLo) ? SIM_TYPED(mad_lo) : nullptr;
    case Op::madc:
      return f.has(kHi) ? carry_of<3>(t, true, cc) : carry_of<2>(t, true, cc);
    case Op::div:
      return SIM_TYPED(div_);
    case Op::rem:
      return SIM_TYPED(rem_);
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
      return SIM_TYPED(sad);
    default:
      return nullptr;
  }
}

Handler resolve_bits(const Form& f, Type t) {
  const unsigned bytes = type_bytes(t);
  const bool pattern = t >= Type::b16 && t <= Type::b64;
  switch (f.op) {
    case Op::and_:
      return pattern ? SIM_BITS(and_) : nullptr;
    case Op::or_:
      return pattern ? SIM_BITS(or_) : nullptr;
    case Op::xor_:
      return pattern ? SIM_BITS(xor_) : nullptr;
    case Op::not_:
      return pattern ? SIM_BITS(not_) : nullptr;
    case Op::cnot:
      return pattern ? SIM_BITS(cnot) : nullptr;
    case Op::shl:
      return SIM_BITS(shl);
    case Op::shr:
      return pattern ? SIM_BITS(shr) : SIM_TYPED(shr);
    case Op::popc:
      return t == Type::b32 ? popc<uint32_t> : t == Type::b64 ? popc<uint64_t> : nullptr;
    case Op::clz:
      return t == Type::b32 ? clz<uint32_t> : t == Type::b64 ? clz<uint64_t> : nullptr;
    case Op::brev:
      return t == Type::b32 ? brev<uint32_t> : t == Type::b64 ? brev<uint64_t> : nullptr;
    case Op::bfi:
      return t == Type::b32 ? bfi<uint32_t> : t == Type::b64 ? bfi<uint64_t> : nullptr;
    case Op::bfe:
      return SIM_WORD(bfe);
    case Op::bfind:
      if (t == Type::u32) return f.has(kShiftamt) ? bfind<uint32_t, true> : bfind<uint32_t, false>;
      if (t == Type::s32) return f.has(kShiftamt) ? bfind<int32_t, true> : bfind<int32_t, false>;
      if (t == Type::u64) return f.has(kShiftamt) ? bfind<uint64_t, true> : bfind<uint64_t, false>;
      if (t == Type::s64) return f.has(kShiftamt) ? bfind<int64_t, true> : bfind<int64_t, false>;
      return nullptr;
    case Op::shf:
      if (t != Type::b32) return nullptr;
      if (f.has(kLeft)) return f.has(kClamp) ? shf<true, true> : shf<true, false>;
      return f.has(kClamp) ? shf<false, true> : shf<false, false>;
    case Op::fns:
      return t == Type::b32 ? fns : nullptr;
    case Op::lop3:
      return t == Type::b32 ? lop3 : nullptr;
    default:
      return nullptr;
  }
}

Handler resolve_bytes(const Form& f) {
  const bool a = f.types[0] == Type::s32, b = f.types[1] == Type::s32;
  switch (f.op) {
    case Op::dp4a:
      if (a) return b ? dp4a<int8_t, int8_t> : dp4a<int8_t, uint8_t>;
      return b ? dp4a<uint8_t, int8_t> : dp4a<uint8_t, uint8_t>;
    case Op::dp2a:
      if (a && b) return f.has(kHi) ? dp2a<int16_t, int8_t, true> : dp2a<int16_t, int8_t, false>;
      if (a) return f.has(kHi) ? dp2a<int16_t, uint8_t, true> : dp2a<int16_t, uint8_t, false>;
      if (b) return f.has(kHi) ? dp2a<uint16_t, int8_t, true> : dp2a<uint16_t, int8_t, false>;
      return f.has(kHi) ? dp2a<uint16_t, uint8_t, true> : dp2a<uint16_t, uint8_t, false>;
    case Op::prmt:
      switch (f.prmt) {
        case Prmt::f4e:
          return prmt<Prmt::f4e>;
        case Prmt::b4e:
          return prmt<Prmt::b4e>;
        case Prmt::rc8:
          return prmt<Prmt::rc8>;
        case Prmt::ecl:
          return prmt<Prmt::ecl>;
        case Prmt::ecr:
          return prmt<Prmt::ecr>;
        case Prmt::rc16:
          return prmt<Prmt::rc16>;
        default:
          return prmt<Prmt::none>;
      }
    case Op::bmsk:
      return f.has(kWrap) ? bmsk<true> : bmsk<false>;
    case Op::szext:
      if (f.types[0] == Type::s32) return f.has(kWrap) ? szext<true, true> : szext<true, false>;
      return f.has(kWrap) ? szext<false, true> : szext<false, false>;
    case Op::vabsdiff4:
      return f.types[0] == Type::u32 && !f.has(~0ull) ? vabsdiff4 : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace

Handler resolve_integer(const Form& f) {
  const Type t = f.type();
  if (t == Type::pred) return resolve_pred(f.op);
  if (f.round != Round::none) return nullptr;
  if (Handler h = resolve_bytes(f)) return h;
  if (Handler h = resolve_bits(f, t)) return h;
  if (is_float(t)) return nullptr;
  return resolve_arithmetic(f, t);
}

}  // namespace sim::SIM_ISA
