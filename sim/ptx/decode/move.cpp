// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file decodes mov, cvt, cvta, isspacep and special registers.
#include <algorithm>
#include <iterator>
#include <string_view>

#include "sim/exec/warp.h"
#include "sim/ptx/decode/decode.h"
#include "sim/ptx/special.h"

namespace sim {

int64_t Decoder::special_register(const std::string& name) {
  const auto it = std::find(std::begin(kSpecialNames), std::end(kSpecialNames), name);
  if (it == std::end(kSpecialNames)) fail("unsupported special register '" + name + "'");
  out_.uses_reserved_shared |= name.starts_with("%reserved_smem_offset");
  return it - std::begin(kSpecialNames);
}

void Decoder::mov(const Statement& s) {
  count(s, 2, 2);
  const Operand& to = s.operands[0];
  const Operand& from = s.operands[1];
  const Type type = form_.type();
  Form f = form_;
  if (type == Type::pred && from.name == "%is_explicit_cluster") {  // a predicate by itself
    Statement question = s;
    question.opcode = "setp.ne.u32";
    question.operands.push_back({});
    question.operands.back().kind = Operand::Kind::imm;
    return statement(question);
  }
  if (type == Type::pred) {
    Draft d = draft(f);
    d.d = predicate_result(to);
    d.a = predicate(from);
    return emit(std::move(d), f, cls_);
  }
  const bool pack = from.kind == Operand::Kind::vector;
  if (!pack && to.kind != Operand::Kind::vector) {
    Draft d = draft(f);
    d.d = destination(to, type);
    d.a = source(from, type);
    return emit(std::move(d), f, cls_);
  }
  // {a, b} = value, or value = {a, b}: the first element is the lowest.
  const Operand& vector = pack ? from : to;
  const size_t n = vector.parts.size();
  const unsigned total = type_bytes(type);
  if (n < 2 || total % n != 0) fail("bad vector operand");
  const auto element = static_cast<unsigned>(total / n);
  const Type part = element == 1   ? Type::b8
                    : element == 2 ? Type::b16
                    : element == 4 ? Type::b32
                                   : Type::b64;
  f.op = pack ? Op::pack : Op::unpack;
  f.vector = static_cast<uint8_t>(n);
  Draft d = draft(f);
  if (pack) {
    d.d = destination(to, type);
    for (const Operand& o : vector.parts) d.list.push_back(source(o, part));
  } else {
    d.a = source(from, type);
    for (const Operand& o : vector.parts) d.list.push_back(destination(o, part));
    d.list_results = static_cast<uint32_t>(n);
  }
  emit(std::move(d), f, cls_);
}

void Decoder::cvt(const Statement& s) {
  count(s, 2, 4);
  if (form_.type_count < 2) fail("two types are needed");
  const Type to = form_.types[0], from = form_.types[1];
  Form f = form_;
  if (f.has(kPackMod)) {
    count(s, 3, 4);
    Draft d = draft(f);
    d.d = destination(s.operands[0], Type::b32);
    d.a = source(s.operands[1], from);
    d.b = source(s.operands[2], from);
    d.c = s.operands.size() > 3 ? source(s.operands[3], Type::b32) : constant(0, 4);
    return emit(std::move(d), f, cls_);
  }
  const bool two = s.operands.size() == 3;
  const bool packed =
      (to == Type::bf16x2 || to == Type::f16x2 || to == Type::e4m3x2 || to == Type::e5m2x2) &&
      from == Type::f32;
  if (two != packed || s.operands.size() > 3) fail("wrong number of operands");
  const Ref a = source(s.operands[1], from, true);
  const Ref b = two ? source(s.operands[2], from, true) : Ref{};
  Draft d = draft(f);
  d.d = destination(s.operands[0], to, true);
  d.a = a;
  d.b = b;
  // A narrow integer fills its register: sign-extended, cut to the register's width.
  const Operand& o = s.operands[0];
  const unsigned width = o.kind == Operand::Kind::reg ? register_bytes(o) : type_bytes(to);
  d.inst.imm = width <= 2 ? 0xFFFF : 0xFFFFFFFF;
  const Ref temporary = d.d;
  emit(std::move(d), f, cls_);
  finish_result(o, to, temporary);
}

void Decoder::cvta(const Statement& s) {
  count(s, 2, 2);
  uint64_t base = 0;
  if (form_.space() == Space::shared || form_.space() == Space::cluster) base = windows().shared;
  if (form_.space() == Space::local) base = windows().local;
  if (form_.space() == Space::param) base = windows().param;
  if (form_.space() == Space::generic) fail("no state space");
  if (form_.type() != Type::u64) fail("unsupported form");
  const Form f = plain_form(form_.has(kTo) ? Op::sub : Op::add, Type::u64);
  Operand from = s.operands[1];
  Draft d = draft(f);
  d.d = destination(s.operands[0], Type::u64);
  d.a = source(from, Type::u64);
  d.b = constant(base, 8);
  emit(std::move(d), f, cls_);
}

// Gives true where the address lies in [aux-list low, high), or for .global outside all windows.
void Decoder::isspacep(const Statement& s) {
  count(s, 2, 2);
  const Windows& w = windows();
  const struct {
    Space space;
    uint64_t low, high;
  } kRanges[] = {{Space::shared, w.shared, w.local},
                 {Space::cluster, w.shared, w.local},
                 {Space::local, w.local, w.param},
                 {Space::param, w.param, w.end},
                 {Space::global, w.shared, w.end}};
  const auto* range = std::find_if(std::begin(kRanges), std::end(kRanges),
                                   [&](const auto& r) { return r.space == form_.space(); });
  if (range == std::end(kRanges)) fail("unsupported form");
  Draft d = draft(form_);
  d.d = predicate_result(s.operands[0]);
  d.a = source(s.operands[1], Type::u64);
  d.b = constant(range->low, 8);
  d.c = constant(range->high, 8);
  emit(std::move(d), form_, cls_);
}

}  // namespace sim
