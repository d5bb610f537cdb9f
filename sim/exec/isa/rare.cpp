// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles forms that compilers hardly emit, lane by lane. They are compiled once.
#include "sim/exec/isa/real.h"

namespace sim::SIM_ISA {
namespace {

// mul24, mad24: the low 24 bits of both factors; .lo the low 32 of 48 bits, .hi the high 32.
template <bool Signed, bool High>
uint32_t product24(uint32_t a, uint32_t b) {
  const auto cut = [](uint32_t x) {
    return Signed ? static_cast<int64_t>(static_cast<int32_t>(x << 8) >> 8)
                  : static_cast<int64_t>(x & 0xFFFFFFu);
  };
  const int64_t p = cut(a) * cut(b);
  return static_cast<uint32_t>(High ? p >> 16 : p);
}
template <bool Signed, bool High>
void mul24(Warp& w, const Inst& i, uint32_t exec) {
  binary<uint32_t, uint32_t, uint32_t>(w, i, exec, product24<Signed, High>);
}
template <bool Signed, bool High>
void mad24(Warp& w, const Inst& i, uint32_t exec) {
  ternary<uint32_t, uint32_t, uint32_t, uint32_t>(
      w, i, exec,
      [](uint32_t a, uint32_t b, uint32_t c) { return product24<Signed, High>(a, b) + c; });
}
void mad24_sat(Warp& w, const Inst& i, uint32_t exec) {
  ternary<int32_t, uint32_t, uint32_t, int32_t>(w, i, exec, [](uint32_t a, uint32_t b, int32_t c) {
    const int64_t s = int64_t{static_cast<int32_t>(product24<true, true>(a, b))} + c;
    return static_cast<int32_t>(s > INT32_MAX ? INT32_MAX : s < INT32_MIN ? INT32_MIN : s);
  });
}
Handler resolve_24(const Form& f) {
  const bool is_signed = f.type() == Type::s32, high = f.has(kHi);
  if ((!is_signed && f.type() != Type::u32) || high == f.has(kLo)) return nullptr;
  if (f.op == Op::mul24) {
    if (is_signed) return high ? mul24<true, true> : mul24<true, false>;
    return high ? mul24<false, true> : mul24<false, false>;
  }
  if (f.has(kSat)) return is_signed && high ? mad24_sat : nullptr;
  if (is_signed) return high ? mad24<true, true> : mad24<true, false>;
  return high ? mad24<false, true> : mad24<false, false>;
}

uint32_t combined(Bool how, uint32_t r, uint32_t p) {
  return how == Bool::and_ ? r & p : how == Bool::or_ ? r | p : how == Bool::xor_ ? r ^ p : r;
}

// list: p, q. p is whether the result is not zero, combined with q.
void lop3_predicate(Warp& w, const Inst& i, uint32_t exec) {
  const auto lut = static_cast<uint32_t>(i.imm);
  const uint16_t* list = w.code->list_data + i.aux;
  uint32_t some = 0;
  each<uint32_t>(w, i.d, exec, [&](int l) {
    const uint32_t a = cells<uint32_t>(w, i.a)[l], b = cells<uint32_t>(w, i.b)[l],
                   c = cells<uint32_t>(w, i.c)[l];
    uint32_t r = 0;
    for (int k = 0; k < 32; ++k) {
      const uint32_t index = (a >> k & 1) << 2 | (b >> k & 1) << 1 | (c >> k & 1);
      r |= (lut >> index & 1) << k;
    }
    some |= r ? 1u << l : 0u;
    return r;
  });
  const uint32_t p = combined(form_of(w, i).combine, some, pred(w, list[1]));
  w.preds[list[0]] = (w.preds[list[0]] & ~exec) | (p & exec);
}

Handler resolve_lop3(const Form& f) {
  return f.combine != Bool::none && f.type() == Type::b32 ? lop3_predicate : nullptr;
}

template <class T>
bool ordered(Compare c, T a, T b) {
  switch (c) {
    case Compare::eq:
    case Compare::equ:
      return a == b;
    case Compare::ne:
    case Compare::neu:
      return a != b;
    case Compare::lt:
    case Compare::lo:
    case Compare::ltu:
      return a < b;
    case Compare::le:
    case Compare::ls:
    case Compare::leu:
      return a <= b;
    case Compare::gt:
    case Compare::hi:
    case Compare::gtu:
      return a > b;
    case Compare::ge:
    case Compare::hs:
    case Compare::geu:
      return a >= b;
    default:
      return c == Compare::num;
  }
}
bool real_holds(Compare c, double a, double b) {
  if (a == a && b == b) return ordered(c, a, b);
  return c >= Compare::equ && c != Compare::num;  // the unordered ones, and nan
}

// One comparison of bits of the form's last type.
bool holds(const Form& f, uint64_t a, uint64_t b) {
  const auto float_at = [&](uint64_t x) {
    const float v = float_of(static_cast<uint32_t>(x));
    return static_cast<double>(f.has(kFtz) ? flush(v) : v);
  };
  switch (f.last_type()) {
    case Type::f32:
      return real_holds(f.compare, float_at(a), float_at(b));
    case Type::f64:
      return real_holds(f.compare, double_of(a), double_of(b));
    case Type::f16:
    case Type::f16x2:
      return real_holds(f.compare, F16::load(a & 0xFFFF), F16::load(b & 0xFFFF));
    case Type::bf16:
    case Type::bf16x2:
      return real_holds(f.compare, Bf16::load(a & 0xFFFF), Bf16::load(b & 0xFFFF));
    default:
      return with_integer(f.last_type(), [&](auto zero) {
        using T = decltype(zero);
        return ordered(f.compare, static_cast<T>(a), static_cast<T>(b));
      });
  }
}
uint32_t mask_of(const Warp& w, const Inst& i, unsigned shift) {
  const Form& f = form_of(w, i);
  const bool wide = type_bytes(f.last_type()) == 8;
  uint32_t r = 0;
  for (int l = 0; l < 32; ++l) {
    const uint64_t a = wide ? cells<uint64_t>(w, i.a)[l] : cells<uint32_t>(w, i.a)[l];
    const uint64_t b = wide ? cells<uint64_t>(w, i.b)[l] : cells<uint32_t>(w, i.b)[l];
    r |= holds(f, a >> shift, b >> shift) ? 1u << l : 0u;
  }
  return r;
}
// imm: what true is.
void set_combined(Warp& w, const Inst& i, uint32_t exec) {
  const Form& f = form_of(w, i);
  const uint32_t p = pred(w, i.c), yes = static_cast<uint32_t>(i.imm);
  const bool two = f.last_type() == Type::f16x2 || f.last_type() == Type::bf16x2;
  const uint32_t low = combined(f.combine, mask_of(w, i, 0), p);
  const uint32_t high = two ? combined(f.combine, mask_of(w, i, 16), p) : 0u;
  each<uint32_t>(w, i.d, exec, [=](int l) {
    const uint32_t first = low >> l & 1 ? yes : 0u;
    return two ? (first & 0xFFFFu) | (high >> l & 1 ? yes << 16 : 0u) : first;
  });
}
// p|q of two halves: p for the low one.
void setp_x2(Warp& w, const Inst& i, uint32_t exec) {
  const Form& f = form_of(w, i);
  const uint32_t p = pred(w, i.c);
  const uint32_t low = combined(f.combine, mask_of(w, i, 0), p);
  const uint32_t high = combined(f.combine, mask_of(w, i, 16), p);
  w.preds[i.d] = (w.preds[i.d] & ~exec) | (low & exec);
  if (i.aux != kNoSlot) w.preds[i.aux] = (w.preds[i.aux] & ~exec) | (high & exec);
}
Handler resolve_compare_rare(const Form& f) {
  if (f.compare == Compare::none || f.last_type() < Type::b16) return nullptr;
  const bool two = f.last_type() == Type::f16x2 || f.last_type() == Type::bf16x2;
  const bool bits =
      f.last_type() == Type::b16 || f.last_type() == Type::b32 || f.last_type() == Type::b64;
  if (bits && f.compare > Compare::ne) return nullptr;
  if (is_integer(f.last_type()) && f.compare >= Compare::equ) return nullptr;
  if (f.op == Op::set && f.combine != Bool::none) return set_combined;
  return f.op == Op::setp && two && !f.has(kFtz) ? setp_x2 : nullptr;
}

// min, max of magnitudes with the sign of the product, in halves.
template <class H, bool Max, bool Nan>
uint32_t extreme_xorsign(uint32_t a, uint32_t b) {
  const uint32_t sign = (a ^ b) & 0x8000u, x = a & 0x7FFFu, y = b & 0x7FFFu;
  const bool odd_x = x > H::inf, odd_y = y > H::inf;
  if (odd_x || odd_y) {
    if (Nan || (odd_x && odd_y)) return 0x7FFFu;
    return sign | (odd_x ? y : x);
  }
  return sign | ((x > y) == Max ? x : y);
}
template <class H, bool Max, bool Nan>
void xorsign(Warp& w, const Inst& i, uint32_t exec) {
  const bool two = form_of(w, i).type() == Type::f16x2 || form_of(w, i).type() == Type::bf16x2;
  binary<uint32_t, uint32_t, uint32_t>(w, i, exec, [=](uint32_t a, uint32_t b) {
    const uint32_t low = extreme_xorsign<H, Max, Nan>(a & 0xFFFFu, b & 0xFFFFu);
    return two ? low | extreme_xorsign<H, Max, Nan>(a >> 16, b >> 16) << 16 : low;
  });
}
template <class H>
Handler resolve_xorsign(const Form& f) {
  if (f.op == Op::max) return f.has(kNanMod) ? xorsign<H, true, true> : xorsign<H, true, false>;
  return f.has(kNanMod) ? xorsign<H, false, true> : xorsign<H, false, false>;
}

Handler resolve_extreme(const Form& f) {
  if (!f.has(kXorsign) || !is_half(f.type()) || f.has(kFtz | kRelu)) return nullptr;
  return f.type() == Type::f16 || f.type() == Type::f16x2 ? resolve_xorsign<F16>(f)
                                                          : resolve_xorsign<Bf16>(f);
}

// cvt.pack to 4 or 2 bits.
void pack_narrow(Warp& w, const Inst& i, uint32_t exec) {
  const Form& f = form_of(w, i);
  const auto n = f.detail;
  const bool is_signed = f.type() == Type::s8;
  const int32_t most = (1 << (is_signed ? n - 1 : n)) - 1, least = is_signed ? -most - 1 : 0;
  const auto cut = [=](int32_t x) {
    const int32_t v = x > most ? most : x < least ? least : x;
    return static_cast<uint32_t>(v) & ((1u << n) - 1);
  };
  ternary<uint32_t, int32_t, int32_t, uint32_t>(w, i, exec, [=](int32_t a, int32_t b, uint32_t c) {
    return c << 2 * n | cut(a) << n | cut(b);
  });
}
template <bool FromHalf>
void saturate_to_half(Warp& w, const Inst& i, uint32_t exec) {
  unary<uint32_t, uint32_t>(w, i, exec, [](uint32_t a) {
    const float x = FromHalf ? F16::load(a & 0xFFFFu) : float_of(a);
    return F16::round(saturated(x));
  });
}
void tf32_satfinite(Warp& w, const Inst& i, uint32_t exec) {
  unary<uint32_t, uint32_t>(w, i, exec, [](uint32_t a) {
    const uint32_t sign = a & 0x80000000u, m = a & 0x7FFFFFFFu;
    if (m > 0x7F800000u) return 0x7FFFFFFFu;
    const uint32_t r = (m + 0x1000u) & 0xFFFFE000u;
    return sign | (r >= 0x7F800000u ? 0x7F7FE000u : r);
  });
}
Handler resolve_cvt(const Form& f) {
  const Type d = f.types[0], s = f.types[1];
  if (f.detail) {
    const bool known =
        f.has(kPackMod) && f.has(kSat) && s == Type::s32 && f.last_type() == Type::b32;
    return known ? pack_narrow : nullptr;
  }
  if (f.type_count != 2) return nullptr;
  if (d == Type::f16 && f.mods == kSat) {
    if (s == Type::f16 && f.round == Round::none) return saturate_to_half<true>;
    return s == Type::f32 && f.round == Round::rn ? saturate_to_half<false> : nullptr;
  }
  const bool tf32 = d == Type::tf32 && s == Type::f32 && f.round == Round::rna;
  return tf32 && f.mods == kSatfinite ? tf32_satfinite : nullptr;
}

}  // namespace

Handler resolve_rare(const Form& f) {
  static constexpr ResolverRow<Op> kRows[] = {
      {Op::mul24, resolve_24},          {Op::mad24, resolve_24},
      {Op::lop3, resolve_lop3},         {Op::set, resolve_compare_rare},
      {Op::setp, resolve_compare_rare}, {Op::min, resolve_extreme},
      {Op::max, resolve_extreme},       {Op::cvt, resolve_cvt}};
  return resolve_by(f.op, f, kRows);
}

}  // namespace sim::SIM_ISA
