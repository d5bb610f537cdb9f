// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// cvt to integers. Saturating and 8- and 16-bit results from floats are in convert_rare.cpp.
#include "sim/exec/isa/convert.h"

namespace sim::SIM_ISA {
namespace {

Handler int_to_int(Type d, Type s) {
  switch (d) {
    case Type::u8:
      return from_int<uint8_t, false>(s);
    case Type::s8:
      return from_int<int8_t, false>(s);
    case Type::u16:
      return from_int<uint16_t, false>(s);
    case Type::s16:
      return from_int<int16_t, false>(s);
    case Type::u32:
      return from_int<uint32_t, false>(s);
    case Type::s32:
      return from_int<int32_t, false>(s);
    case Type::u64:
      return from_int<uint64_t, false>(s);
    case Type::s64:
      return from_int<int64_t, false>(s);
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

}  // namespace

Handler resolve_convert_integer(const Form& f) {
  const Type d = f.types[0], s = f.types[1];
  if (is_integer(s)) {
    const bool plain = f.round == Round::none && !f.has(kFtz | kRelu | kSat);
    return plain ? int_to_int(d, s) : nullptr;
  }
  switch (s) {
    case Type::f32:
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
