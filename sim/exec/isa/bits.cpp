// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles shifts, bit fields, and logic on values and predicates.
#include "sim/exec/isa/integer.h"

namespace sim::SIM_ISA {
namespace {

SIM_BINARY(and_, a& b)
SIM_BINARY(or_, a | b)
SIM_BINARY(xor_, a ^ b)
SIM_UNARY(not_, ~a)
SIM_UNARY(cnot, a == 0 ? 1 : 0)

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
        uint32_t left = offset > 0 ? uint32_t(offset) : 0u - uint32_t(offset);
        for (int at = int(base); at >= 0 && at < 32; at += step) {
          if ((mask >> at & 1) && --left == 0) return uint32_t(at);
        }
        return 0xFFFFFFFFu;
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

Handler resolve_values(const Form& f, Type t) {
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

}  // namespace

Handler resolve_bits(const Form& f) {
  if (f.type() == Type::pred) return resolve_pred(f.op);
  return resolve_values(f, f.type());
}

}  // namespace sim::SIM_ISA
