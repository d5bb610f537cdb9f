// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles cvt from f32 to f16 and bf16, alone and in pairs.
#include "sim/exec/isa/convert_half.h"

namespace sim::SIM_ISA {
namespace {

// a in the upper half.
template <class H, Round R, bool Relu, bool Satfinite>
void to_half_two(Warp& w, const Inst& i, uint32_t exec) {
  binary<uint32_t, float, float>(
      w, i, exec, [](float a, float b) __attribute__((always_inline)) {
        return adjusted<H, Relu, Satfinite>(to_half<H, R>(a)) << 16 |
               adjusted<H, Relu, Satfinite>(to_half<H, R>(b));
      });
}
template <class H, Round R>
Handler half_two(const Form& f) {
  if (f.has(kSatfinite))
    return f.has(kRelu) ? SIM_RARE(to_half_two<H, R, true, true>)
                        : SIM_RARE(to_half_two<H, R, false, true>);
  return f.has(kRelu)     ? SIM_RARE(to_half_two<H, R, true, false>)
         : R != Round::rn ? SIM_RARE(to_half_two<H, R, false, false>)
                          : to_half_two<H, Round::rn, false, false>;
}
template <class H, Round R>
Handler half_one_mods(const Form& f) {
  if (f.has(kSatfinite))
    return f.has(kRelu) ? SIM_RARE(to_half_one<H, AsF32, R, true, true>)
                        : SIM_RARE(to_half_one<H, AsF32, R, false, true>);
  return f.has(kRelu)     ? SIM_RARE(to_half_one<H, AsF32, R, true, false>)
         : R != Round::rn ? SIM_RARE(to_half_one<H, AsF32, R, false, false>)
                          : to_half_one<H, AsF32, Round::rn, false, false>;
}
template <class H>
Handler half_one(const Form& f) {
  if (f.has(kFtz | kSat)) return nullptr;
  switch (f.round) {
    case Round::rn:
      return half_one_mods<H, Round::rn>(f);
    case Round::rz:
      return half_one_mods<H, Round::rz>(f);
    case Round::rm:
      return f.has(kRelu | kSatfinite) ? nullptr : SIM_RARE(half_steps<H, AsF32, Round::rm>);
    case Round::rp:
      return f.has(kRelu | kSatfinite) ? nullptr : SIM_RARE(half_steps<H, AsF32, Round::rp>);
    default:
      return nullptr;
  }
}
template <class H>
Handler half_pair(const Form& f) {
  if (f.round == Round::rn) return half_two<H, Round::rn>(f);
  return f.round == Round::rz ? half_two<H, Round::rz>(f) : nullptr;
}

}  // namespace

Handler resolve_convert_half(const Form& f) {
  if (f.types[1] != Type::f32) return nullptr;
  return resolve_by(f.types[0], f,
                    {{Type::f16, half_one<F16>},
                     {Type::bf16, half_one<Bf16>},
                     {Type::f16x2, half_pair<F16>},
                     {Type::bf16x2, half_pair<Bf16>}});
}

}  // namespace sim::SIM_ISA
