// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// cvt to integers. Saturating and 8- and 16-bit results from floats are in convert_rare.cpp.
#include "sim/exec/isa/convert.h"

namespace sim::SIM_ISA {
namespace {

// Bits that D does not keep make no difference, nor does the sign of a D that is no wider than S:
// so one handler serves several pairs of types.
template <class D>
Handler narrowed(Type s) {
  switch (s) {
    case Type::u8:
    case Type::b8:
      return int_int<D, uint8_t>;
    case Type::s8:
      return int_int<D, int8_t>;
    case Type::u16:
    case Type::b16:
      return int_int<D, uint16_t>;
    case Type::s16:
      return int_int<D, int16_t>;
    case Type::u32:
    case Type::b32:
    case Type::s32:
      return int_int<D, uint32_t>;
    case Type::u64:
    case Type::b64:
    case Type::s64:
      return int_int<D, uint64_t>;
    default:
      return nullptr;
  }
}
Handler widened(Type s) {
  switch (s) {
    case Type::u32:
    case Type::b32:
      return int_int<uint64_t, uint32_t>;
    case Type::s32:
      return int_int<uint64_t, int32_t>;
    default:
      return narrowed<uint64_t>(s);
  }
}
Handler int_to_int(Type d, Type s) {
  switch (d) {
    case Type::u8:
      return narrowed<uint8_t>(s);
    case Type::s8:
      return narrowed<int8_t>(s);
    case Type::u16:
      return narrowed<uint16_t>(s);
    case Type::s16:
      return narrowed<int16_t>(s);
    case Type::u32:
    case Type::s32:
      return narrowed<uint32_t>(s);
    case Type::u64:
    case Type::s64:
      return widened(s);
    default:
      return nullptr;
  }
}

template <class S>
Handler float_to_int(Type d, Round r) {
  switch (d) {
    case Type::u32:
      return float_int_round<uint32_t, S>(r);
    case Type::s32:
      return float_int_round<int32_t, S>(r);
    case Type::u64:
      return float_int_round<uint64_t, S>(r);
    case Type::s64:
      return float_int_round<int64_t, S>(r);
    default:
      return nullptr;
  }
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
  switch (s) {
    case Type::f32:
      if (Handler h = f.has(kFtz) ? nullptr : usual_float_to_int(d, f.round)) return h;
      return f.has(kFtz) ? float_to_int<AsF32Ftz>(d, f.round) : float_to_int<AsF32>(d, f.round);
    case Type::f64:
      return float_to_int<AsF64>(d, f.round);
    case Type::f16:
      return float_to_int<AsF16>(d, f.round);
    case Type::bf16:
      return float_to_int<AsBf16>(d, f.round);
    default:
      return nullptr;
  }
}

}  // namespace sim::SIM_ISA
