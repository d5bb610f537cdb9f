// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles cvt: which file knows a pair of types.
#include "sim/exec/isa/convert.h"

namespace sim::SIM_ISA {
namespace {

Handler resolve_fast(const Form& f) {
  const Type d = f.types[0];
  if (is_integer(d)) return resolve_convert_integer(f);
  return d == Type::f32 || d == Type::f64 ? resolve_convert_float(f) : resolve_convert_half(f);
}

}  // namespace

Handler resolve_convert(const Form& f) {
  if (f.op != Op::cvt) return nullptr;
  if (f.has(kPackMod)) return base::resolve_convert_fp8(f);
  if (Handler h = resolve_fast(f)) return h;
  if (Handler h = base::resolve_convert_rare(f)) return h;
  return base::resolve_convert_fp8(f);
}

}  // namespace sim::SIM_ISA
