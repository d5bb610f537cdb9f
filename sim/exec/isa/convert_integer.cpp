// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles cvt to integers. Saturating and 8- and 16-bit results from floats are in
// convert_rare.cpp.
#include "sim/exec/isa/convert.h"

namespace sim::SIM_ISA {
namespace {

// Bits that D does not keep make no difference, nor does the sign of a D that is no wider than S:
// so one handler serves several pairs of types.
template <class D>
Handler narrowed(Type s) {
  return with_integer(s, [](auto value) -> Handler {
    using S = decltype(value);
    if constexpr (sizeof(S) < 4)
      return int_int<D, S>;
    else
      return int_int<D, U<S>>;
  });
}
Handler widened(Type s) {
  return s == Type::s32 ? int_int<uint64_t, int32_t> : narrowed<uint64_t>(s);
}
Handler int_to_int(Type d, Type s) {
  if (is_bits(d)) return nullptr;
  return with_integer(d, [s](auto result) {
    using D = decltype(result);
    if constexpr (sizeof(D) == 8)
      return widened(s);
    else if constexpr (sizeof(D) == 4)
      return narrowed<uint32_t>(s);
    else
      return narrowed<D>(s);
  });
}

template <class S>
Handler float_to_int(Type d, Round r) {
  if (is_bits(d)) return nullptr;
  return with_integer(d, [r](auto result) -> Handler {
    using D = decltype(result);
    if constexpr (sizeof(D) >= 4)
      return float_int_round<D, S>(r);
    else
      return nullptr;
  });
}
// The usual ones have a loop of their own.
Handler usual_float_to_int(Type d, Round r) {
  if (r == Round::rzi) {
    return d == Type::u32   ? float_int<uint32_t, AsF32, Round::rzi>
           : d == Type::s32 ? float_int<int32_t, AsF32, Round::rzi>
                            : nullptr;
  }
  if (d != Type::s32) return nullptr;
  return r == Round::rni   ? float_int<int32_t, AsF32, Round::rni>
         : r == Round::rmi ? float_int<int32_t, AsF32, Round::rmi>
                           : nullptr;
}

}  // namespace

Handler resolve_convert_integer(const Form& f) {
  const Type d = f.types[0], s = f.types[1];
  if (is_integer(s)) {
    const bool plain = f.round == Round::none && !f.has(kFtz | kRelu | kSat);
    return plain ? int_to_int(d, s) : nullptr;
  }
  if (s == Type::f32 && !f.has(kFtz)) {
    if (Handler h = usual_float_to_int(d, f.round)) return h;
  }
  return with_real_source(f,
                          [&](auto source) { return float_to_int<decltype(source)>(d, f.round); });
}

}  // namespace sim::SIM_ISA
