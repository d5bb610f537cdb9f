// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles setp and set.
#include "sim/exec/isa/real.h"

namespace sim::SIM_ISA {
namespace {

// Reads a lane for comparison; a half becomes its float value.
template <class T>
struct Reader {
  static SIM_INLINE T read(CellOf<T> v) { return get<T>(v); }
  using cell = T;
};
template <>
struct Reader<F16> {
  static SIM_INLINE float read(uint32_t v) { return from_f16(v & 0xFFFFu); }
  using cell = uint32_t;
};
template <>
struct Reader<Bf16> {
  static SIM_INLINE float read(uint32_t v) { return from_bf16(v & 0xFFFFu); }
  using cell = uint32_t;
};

template <Compare C, class V>
SIM_INLINE bool holds(V a, V b) {
  switch (C) {
    case Compare::eq:
      return a == b;
    case Compare::ne:
      return a < b || a > b;
    case Compare::lt:
    case Compare::lo:
      return a < b;
    case Compare::le:
    case Compare::ls:
      return a <= b;
    case Compare::gt:
    case Compare::hi:
      return a > b;
    case Compare::ge:
    case Compare::hs:
      return a >= b;
    case Compare::equ:
      return !(a < b || a > b);
    case Compare::neu:
      return !(a == b);
    case Compare::ltu:
      return !(a >= b);
    case Compare::leu:
      return !(a > b);
    case Compare::gtu:
      return !(a <= b);
    case Compare::geu:
      return !(a < b);
    case Compare::num:
      return a == a && b == b;
    case Compare::nan:
      return a != a || b != b;
    default:
      return false;
  }
}
template <Compare C, class T, bool Ftz>
SIM_INLINE bool test(CellOf<typename Reader<T>::cell> a, CellOf<typename Reader<T>::cell> b) {
  if constexpr (Ftz)
    return holds<C>(flush(Reader<T>::read(a)), flush(Reader<T>::read(b)));
  else
    return holds<C>(Reader<T>::read(a), Reader<T>::read(b));
}

template <Compare C, class T, bool Ftz>
__attribute__((noinline)) uint32_t mask_of(const Warp& w, const Inst& i) {
  using V = typename Reader<T>::cell;
  const CellOf<V>* a = cells<V>(w, i.a);
  const CellOf<V>* b = cells<V>(w, i.b);
  alignas(32) uint8_t byte[32];
  for (int l = 0; l < 32; ++l) byte[l] = test<C, T, Ftz>(a[l], b[l]) ? 0xFF : 0;
#ifdef __AVX2__
  typedef char Bytes __attribute__((vector_size(32)));
  return static_cast<uint32_t>(__builtin_ia32_pmovmskb256(*reinterpret_cast<const Bytes*>(byte)));
#else
  typedef char Bytes __attribute__((vector_size(16)));
  const auto* half = reinterpret_cast<const Bytes*>(byte);
  return static_cast<uint32_t>(__builtin_ia32_pmovmskb128(half[0])) |
         static_cast<uint32_t>(__builtin_ia32_pmovmskb128(half[1])) << 16;
#endif
}

// The same lane by lane through a function, for forms that are not worth a loop of their own.
template <class Cell>
__attribute__((noinline)) uint32_t mask_called(const Warp& w, const Inst& i,
                                               bool (*f)(Cell, Cell)) {
  const Cell* a = reinterpret_cast<const Cell*>(w.regs + i.a * static_cast<size_t>(kSlotBytes));
  const Cell* b = reinterpret_cast<const Cell*>(w.regs + i.b * static_cast<size_t>(kSlotBytes));
  uint32_t r = 0;
  for (int l = 0; l < 32; ++l) r |= static_cast<uint32_t>(f(a[l], b[l])) << l;
  return r;
}
template <Compare C, class T, bool Ftz>
bool test_called(CellOf<typename Reader<T>::cell> a, CellOf<typename Reader<T>::cell> b) {
  return test<C, T, Ftz>(a, b);
}

// The comparison that holds where C does not, if that one has the loop for both; else C.
template <class V>
constexpr Compare opposite(Compare c) {
  constexpr bool kOrdered = V(0.5) == V(0);  // integers have no NaN
  return c == Compare::equ              ? Compare::ne
         : c == Compare::neu            ? Compare::eq
         : c == Compare::ltu            ? Compare::ge
         : c == Compare::leu            ? Compare::gt
         : c == Compare::gtu            ? Compare::le
         : c == Compare::geu            ? Compare::lt
         : kOrdered && c == Compare::ne ? Compare::eq
         : kOrdered && c == Compare::ge ? Compare::lt
         : kOrdered && c == Compare::le ? Compare::gt
                                        : c;
}
template <Compare C, class T, bool Ftz>
void setp_plain(Warp& w, const Inst& i, uint32_t exec) {
  constexpr Compare kOther = opposite<T>(C);
  const uint32_t found = mask_of<kOther, T, Ftz>(w, i), r = kOther == C ? found : ~found;
  w.preds[i.d] = (w.preds[i.d] & ~exec) | (r & exec);
}

SIM_INLINE uint32_t combined(Bool how, uint32_t r, uint32_t p) {
  return how == Bool::and_ ? r & p : how == Bool::or_ ? r | p : how == Bool::xor_ ? r ^ p : r;
}
// imm: how the result combines with the predicate c, if there is one.
void set_pair(Warp& w, const Inst& i, uint32_t exec, uint32_t r) {
  const auto how = static_cast<Bool>(i.imm);
  const uint32_t p = how == Bool::none ? 0u : pred(w, i.c);
  const uint32_t first = combined(how, r, p), second = combined(how, ~r, p);
  w.preds[i.d] = (w.preds[i.d] & ~exec) | (first & exec);
  if (i.aux != kNoSlot) w.preds[i.aux] = (w.preds[i.aux] & ~exec) | (second & exec);
}
// imm: what true is, all ones or a one of the result's type.
void set_value(Warp& w, const Inst& i, uint32_t exec, uint32_t r) {
  const auto yes = static_cast<uint32_t>(i.imm);
  each<uint32_t>(w, i.d, exec, [=](int l) { return (r >> l & 1) ? yes : 0u; });
}
template <Compare C, class T, bool Ftz>
void setp_pair(Warp& w, const Inst& i, uint32_t exec) {
  set_pair(w, i, exec, mask_called(w, i, test_called<C, T, Ftz>));
}
template <Compare C, class T, bool Ftz>
void set_(Warp& w, const Inst& i, uint32_t exec) {
  set_value(w, i, exec, mask_called(w, i, test_called<C, T, Ftz>));
}
// Two halves compared at once.
void set_halves(Warp& w, const Inst& i, uint32_t exec, bool (*f)(uint32_t, uint32_t)) {
  const auto yes = static_cast<uint32_t>(i.imm) & 0xFFFFu;
  binary<uint32_t, uint32_t, uint32_t>(w, i, exec, [=](uint32_t a, uint32_t b) {
    const uint32_t low = f(a & 0xFFFFu, b & 0xFFFFu) ? yes : 0u;
    const uint32_t high = f(a >> 16, b >> 16) ? yes : 0u;
    return low | high << 16;
  });
}
template <Compare C, class H>
void set_x2(Warp& w, const Inst& i, uint32_t exec) {
  set_halves(w, i, exec, test_called<C, H, false>);
}

template <class T>
constexpr bool kUsual = sizeof(CellOf<typename Reader<T>::cell>) == sizeof(T);
template <>
constexpr bool kUsual<double> = false;

// A loop of their own have setp of floats and of 32 and 64 bits; not the tests for NaN.
template <Compare C, class T, bool Ftz>
Handler pick(const Form& f) {
  if (f.op == Op::set) return f.combine == Bool::none ? SIM_RARE(set_<C, T, Ftz>) : nullptr;
  if (f.combine != Bool::none || f.vector != 1) return SIM_RARE(setp_pair<C, T, Ftz>);
  if constexpr (kUsual<T> && C != Compare::num && C != Compare::nan)
    return setp_plain<C, T, Ftz>;
  else
    return SIM_RARE(setp_pair<C, T, Ftz>);
}
template <Compare C, class H>
Handler pick_x2(const Form& f) {
  return f.op == Op::set && f.combine == Bool::none ? SIM_RARE(set_x2<C, H>) : nullptr;
}

template <Compare C>
struct Comparison {
  static constexpr Compare value = C;
};
// Returns make(Comparison<C>()) for the C of the list that is `c`; null if none is.
template <Compare C, Compare... Rest, class Make>
Handler with_compare(Compare c, Make make) {
  if (c == C) return make(Comparison<C>());
  if constexpr (sizeof...(Rest) > 0)
    return with_compare<Rest...>(c, make);
  else
    return nullptr;
}
template <class Make>
Handler with_real_compare(Compare c, Make make) {
  return with_compare<Compare::eq, Compare::ne, Compare::lt, Compare::le, Compare::gt, Compare::ge,
                      Compare::equ, Compare::neu, Compare::ltu, Compare::leu, Compare::gtu,
                      Compare::geu, Compare::num, Compare::nan>(c, make);
}

// Integers may write lo, ls, hi and hs for lt, le, gt and ge.
constexpr Compare usual_name(Compare c) {
  return c == Compare::lo   ? Compare::lt
         : c == Compare::ls ? Compare::le
         : c == Compare::hi ? Compare::gt
         : c == Compare::hs ? Compare::ge
                            : c;
}
template <class T>
Handler integers(const Form& f) {
  return with_compare<Compare::eq, Compare::ne, Compare::lt, Compare::le, Compare::gt, Compare::ge>(
      usual_name(f.compare), [&f](auto c) { return pick<decltype(c)::value, T, false>(f); });
}
template <class T, bool Ftz>
Handler reals(const Form& f) {
  return with_real_compare(f.compare, [&f](auto c) { return pick<decltype(c)::value, T, Ftz>(f); });
}
template <class H>
Handler pairs(const Form& f) {
  return with_real_compare(f.compare, [&f](auto c) { return pick_x2<decltype(c)::value, H>(f); });
}

Handler resolve_set(const Form& f) {
  const Type t = f.last_type();
  if (t == Type::f16x2) return pairs<F16>(f);
  if (t == Type::bf16x2) return pairs<Bf16>(f);
  if (f.has(kFtz)) return t == Type::f32 ? reals<float, true>(f) : nullptr;
  if (is_integer(t)) {
    if (is_bits(t) && f.compare > Compare::ne) return nullptr;
    return with_integer(t, [&f](auto value) -> Handler {
      using T = decltype(value);
      if constexpr (sizeof(T) >= 2)
        return integers<T>(f);
      else
        return nullptr;
    });
  }
  return resolve_by(t, f,
                    {{Type::f32, reals<float, false>},
                     {Type::f64, reals<double, false>},
                     {Type::f16, reals<F16, false>},
                     {Type::bf16, reals<Bf16, false>}});
}

}  // namespace

Handler resolve_compare(const Form& f) {
  return f.op == Op::setp || f.op == Op::set ? resolve_set(f) : nullptr;
}

}  // namespace sim::SIM_ISA
