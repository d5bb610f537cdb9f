// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles selp, slct, testp, isspacep.
#include "sim/exec/isa/real.h"

namespace sim::SIM_ISA {
namespace {

template <class T>
void selp(Warp& w, const Inst& i, uint32_t exec) {
  const uint32_t p = pred(w, i.c);
  const T* a = cells<T>(w, i.a);
  const T* b = cells<T>(w, i.b);
  each<T>(w, i.d, exec, [=](int l) { return (p >> l & 1u) ? a[l] : b[l]; });
}
template <class T, class C, bool Ftz>
void slct(Warp& w, const Inst& i, uint32_t exec) {
  ternary<T, T, T, C>(w, i, exec, [](T a, T b, C c) {
    if constexpr (Ftz) c = flush(c);
    return c >= C(0) ? a : b;
  });
}

template <class F>
void testp(Warp& w, const Inst& i, uint32_t exec) {
  const CellOf<F>* a = cells<F>(w, i.a);
  uint32_t r = 0;
  for (int l = 0; l < 32; ++l) {
    const F x = a[l] < F(0) ? -a[l] : a[l];
    const F tiny = sizeof(F) == 4 ? F(1.17549435e-38f) : F(2.2250738585072014e-308);
    const bool nan = a[l] != a[l], inf = !nan && x - x != F(0);
    bool yes = false;
    switch (static_cast<TestP>(i.imm)) {
      case TestP::finite:
        yes = !nan && !inf;
        break;
      case TestP::infinite:
        yes = inf;
        break;
      case TestP::number:
        yes = !nan;
        break;
      case TestP::notanumber:
        yes = nan;
        break;
      case TestP::normal:
        yes = !nan && !inf && x >= tiny;
        break;
      case TestP::subnormal:
        yes = !nan && x < tiny && x != F(0);
        break;
      default:
        break;
    }
    r |= yes ? 1u << l : 0u;
  }
  w.preds[i.d] = (w.preds[i.d] & ~exec) | (r & exec);
}

template <bool Outside>
void isspacep(Warp& w, const Inst& i, uint32_t exec) {
  const uint64_t* a = cells<uint64_t>(w, i.a);
  const uint64_t low = cells<uint64_t>(w, i.b)[0], high = cells<uint64_t>(w, i.c)[0];
  uint32_t r = 0;
  for (int l = 0; l < 32; ++l) r |= (a[l] >= low && a[l] < high) != Outside ? 1u << l : 0u;
  w.preds[i.d] = (w.preds[i.d] & ~exec) | (r & exec);
}

}  // namespace

Handler resolve_select(const Form& f) {
  const Type t = f.type();
  const unsigned bytes = type_bytes(t);
  switch (f.op) {
    case Op::selp:
      if (t == Type::pred || is_half(t)) return nullptr;
      return bytes == 8 ? selp<uint64_t> : bytes ? selp<uint32_t> : nullptr;
    case Op::slct: {
      const Type c = f.types[1];
      if (c == Type::s32)
        return bytes == 8 ? slct<uint64_t, int32_t, false> : slct<uint32_t, int32_t, false>;
      if (c != Type::f32) return nullptr;
      if (f.has(kFtz))
        return bytes == 8 ? slct<uint64_t, float, true> : slct<uint32_t, float, true>;
      return bytes == 8 ? slct<uint64_t, float, false> : slct<uint32_t, float, false>;
    }
    case Op::testp:
      return t == Type::f32 ? testp<float> : t == Type::f64 ? testp<double> : nullptr;
    case Op::isspacep:
      return f.space() == Space::global ? isspacep<true> : isspacep<false>;
    default:
      return nullptr;
  }
}

}  // namespace sim::SIM_ISA
