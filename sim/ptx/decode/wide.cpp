// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles .b128 values: two 64-bit halves, and every instruction on them one or two on
// the halves.
#include "sim/ptx/decode/decode.h"

namespace sim {

Ref Decoder::half(const Operand& o, uint8_t which) {
  if (o.kind == Operand::Kind::sink) return fresh(2);
  if (o.kind == Operand::Kind::vector && o.parts.size() == 2) {
    const Operand& part = o.parts[which];
    return part.kind == Operand::Kind::sink ? fresh(2) : source(part, Type::b64);
  }
  if (o.kind != Operand::Kind::reg || register_bytes(o) != 16) fail("expected a .b128 register");
  Ref r = map_[o.id];
  r.half = which;
  return r;
}

void Decoder::wide(const Statement& s) {
  Form f = form_;
  f.types[0] = Type::b64;
  if (f.op == Op::mov) {
    count(s, 2, 2);
    const Operand& to = s.operands[0];
    const Operand& from = s.operands[1];
    if (to.kind == Operand::Kind::vector && from.kind == Operand::Kind::vector) fail("two vectors");
    for (uint8_t k = 0; k < 2; ++k) {
      Draft d = draft(f);
      d.a = half(from, k);
      d.d = half(to, k);
      emit(std::move(d), f, cls_);
    }
    return;
  }
  if (f.vector != 1) fail("unsupported form");
  const bool load = f.op == Op::ld, store = f.op == Op::st;
  const bool swap = f.op == Op::atom && (f.atomic == Atomic::exch || f.atomic == Atomic::cas);
  if (!load && !store && !swap) fail("unsupported form");
  if (f.space() == Space::param) fail("unsupported form");
  const size_t extra = f.has(kCacheHint) ? 1 : 0;
  const size_t values = store ? 1 : load ? 0 : f.atomic == Atomic::cas ? 2 : 1;
  count(s, (store ? 1 : 2) + values, (store ? 1 : 2) + values + extra);
  f.vector = 2;
  Draft d = draft(swap ? form_ : f, Kind::checked);
  const size_t at = store ? 0 : 1;
  d.a = address(s.operands[at], f.space(), &d);
  d.inst.extra = out_.memory_ordinals++;
  if (!store) {
    d.list = {half(s.operands[0], 0), half(s.operands[0], 1)};
    d.list_results = 2;
  }
  for (size_t k = at + 1; k <= at + values; ++k) {
    d.list.push_back(half(s.operands[k], 0));
    d.list.push_back(half(s.operands[k], 1));
  }
  if (load) d.c = {Ref::Kind::raw, 0};
  emit(std::move(d), swap ? form_ : f, cls_);
}

// lop3.BoolOp.b32 d|p, a, b, c, table, q: p is whether d is not zero, combined with q.
void Decoder::lop3_predicate(const Statement& s) {
  count(s, 6, 6);
  const Operand& to = s.operands[0];
  if (to.kind != Operand::Kind::pair || s.operands[4].kind != Operand::Kind::imm) {
    fail("expected d|p and a table");
  }
  Draft d = draft(form_);
  d.d = destination(to.parts[0], Type::b32);
  d.a = source(s.operands[1], Type::b32);
  d.b = source(s.operands[2], Type::b32);
  d.c = source(s.operands[3], Type::b32);
  d.list = {predicate_result(to.parts[1]), predicate(s.operands[5])};
  d.inst.imm = static_cast<int64_t>(s.operands[4].bits);
  emit(std::move(d), form_, cls_);
}

}  // namespace sim
