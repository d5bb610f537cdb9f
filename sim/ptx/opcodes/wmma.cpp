// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file says which shapes, layouts and types of wmma exist.
#include "sim/ptx/wmma.h"

#include "sim/ptx/opcodes/factors.h"

namespace sim {
namespace {

// Says whether a kind of factor comes in this shape.
bool wmma_shape(const Form& f, Kin kin) {
  const bool square = f.m == 16 && f.n == 16;
  const bool wide = square || (f.m == 8 && f.n == 32) || (f.m == 32 && f.n == 8);
  const bool small = f.m == 8 && f.n == 8;
  switch (kin) {
    case Kin::f16:
    case Kin::bf16:
    case Kin::int8:
      return wide && f.k == 16;
    case Kin::tf32:
      return square && f.k == 8;
    case Kin::f64:
      return small && f.k == 4;
    case Kin::int4:
      return small && f.k == 32;
    case Kin::bit:
      return small && f.k == 128;
    default:
      return false;
  }
}

// An accumulator comes in the shapes of the factors that may have it.
bool wmma_accumulator(const Form& f, Type type, Sum* out) {
  for (const Factor& factor : kFactors) {
    if (wmma_shape(f, factor.kin) && sum_of(type, factor.kin, out)) return true;
  }
  return false;
}

// Elements that are smaller than a byte lie along k.
bool wmma_layouts(Kin kin, const WmmaConfig& c, bool a, bool b) {
  if (kin != Kin::int4 && kin != Kin::bit) return true;
  return (!a || !c.columns_a) && (!b || c.columns_b);
}

bool wmma_move_config(const Form& f, WmmaConfig* out) {
  const bool row = f.detail & kTensorRow, col = f.detail & kTensorCol;
  if (f.type_count != 1 || row == col) return false;
  out->columns = col;
  const uint32_t parts = kTensorPartA | kTensorPartB | kTensorPartC | kTensorPartD;
  if (f.detail & (kTensorPartC | kTensorPartD)) {
    out->part = WmmaPart::accumulator;
    return wmma_accumulator(f, f.type(), &out->c);
  }
  if (!(f.detail & parts)) return false;
  const bool a = f.detail & kTensorPartA;
  const Factor factor = factor_of(f.type());
  out->part = a ? WmmaPart::a : WmmaPart::b;
  out->a = out->b = factor.element;
  out->columns_a = out->columns_b = col;
  return wmma_shape(f, factor.kin) && wmma_layouts(factor.kin, *out, a, !a);
}

}  // namespace

bool wmma_config(const Form& f, WmmaConfig* out) {
  if (f.m > 32 || f.n > 32 || f.k > 128) return false;
  out->m = static_cast<uint8_t>(f.m);
  out->n = static_cast<uint8_t>(f.n);
  out->k = static_cast<uint8_t>(f.k);
  if (f.op != Op::wmma_mma) return wmma_move_config(f, out);
  const bool row_a = f.detail & kTensorRow, row_b = f.detail & kTensorSecondRow;
  out->columns_a = f.detail & kTensorCol;
  out->columns_b = f.detail & kTensorSecondCol;
  if (row_a == out->columns_a || row_b == out->columns_b) return false;
  // Products of f16 name the sums alone: D, C. All others name D, A, B, C.
  const bool short_form = f.type_count == 2;
  if (!short_form && (f.type_count != 4 || f.types[1] != f.types[2])) return false;
  const Factor factor = short_form ? factor_of(Type::f16) : factor_of(f.types[1]);
  const Kin kin = factor.kin;
  out->a = out->b = factor.element;
  if (!wmma_shape(f, kin) || short_form != (kin == Kin::f16)) return false;
  if (!sum_of(f.types[0], kin, &out->d) || !sum_of(f.last_type(), kin, &out->c)) return false;
  const bool logic = f.detail & (kTensorAnd | kTensorXor);
  const bool both = (f.detail & kTensorAnd) && (f.detail & kTensorXor);
  if (both || logic != ((f.detail & kTensorPopc) != 0) || logic != (kin == Kin::bit)) return false;
  out->exclusive_or = f.detail & kTensorXor;
  out->saturate = f.detail & kTensorSat;
  if (out->saturate && kin != Kin::int8 && kin != Kin::int4) return false;
  return wmma_layouts(kin, *out, true, true) && (f.round == Round::none || kin == Kin::f64);
}

}  // namespace sim
