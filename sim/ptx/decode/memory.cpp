// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file decodes loads, stores, atomics, cp.async and prefetches.
#include "sim/ptx/decode/decode.h"

namespace sim {

// Fills imm; the result is the base. Inst::b of memory instructions is 1 if the base has 64 bits.
Ref Decoder::address(const Operand& o, Space space, Draft* d) {
  if (o.kind != Operand::Kind::address) fail("expected an address in brackets");
  d->inst.imm = o.offset;
  d->b = {Ref::Kind::raw, 1};
  if (o.parts.empty()) {
    d->inst.imm = 0;
    return constant(static_cast<uint64_t>(o.offset), 8);
  }
  const Operand& base = o.parts[0];
  if (base.kind == Operand::Kind::reg) {
    const unsigned bytes = register_bytes(base);
    const bool window = space == Space::shared || space == Space::cluster ||
                        space == Space::local || space == Space::param;
    if (bytes == 4 && window)
      d->b = {Ref::Kind::raw, 0};
    else if (bytes != 8)
      fail("the address '" + base.name + "' does not have 64 bits");
    return map_[base.id];
  }
  if (base.kind == Operand::Kind::symbol) return symbol(base, 8);
  fail("undefined name '" + base.name + "' in an address");
}

// [kernel_param + n]: the same value for every thread of the grid.
bool Decoder::constant_param(const Operand& o, uint32_t* offset, uint32_t* room) {
  if (o.kind != Operand::Kind::address || o.parts.empty()) return false;
  const Operand& base = o.parts[0];
  if (base.kind != Operand::Kind::symbol || !is_kernel_param(base.id)) return false;
  const Declaration& v = text_.variables[base.id];
  if (o.offset < 0 || static_cast<uint64_t>(o.offset) > v.bytes) {
    fail("offset " + std::to_string(o.offset) + " is outside parameter '" + v.name + "'");
  }
  *offset = offsets_[base.id] + static_cast<uint32_t>(o.offset);
  *room = static_cast<uint32_t>(v.bytes - o.offset);
  return true;
}

void Decoder::load(const Statement& s) {
  count(s, 2, form_.has(kCacheHint) ? 3 : 2);
  const Operand& to = s.operands[0];
  const Type type = form_.type();
  if (to.count() != form_.vector) fail("wrong number of destinations");
  Form f = form_;
  uint32_t offset = 0, room = 0;
  const bool constant_address =
      f.space() == Space::param && constant_param(s.operands[1], &offset, &room);
  Draft d;
  if (constant_address) {
    if (type_bytes(type) * f.vector > room) fail("read past the end of a parameter");
    f.op = Op::ld_param;
    d = draft(f);
    d.inst.imm = offset;
    d.inst.extra = f.vector;
  } else {
    if (f.space() == Space::param && !s.operands[1].parts.empty() &&
        s.operands[1].parts[0].kind == Operand::Kind::symbol) {
      f.spaces[0] = Space::local;  // a parameter of an inlined call
    }
    d = draft(f, Kind::checked);
    d.a = address(s.operands[1], f.space(), &d);
    d.inst.extra = out_.memory_ordinals++;
  }
  std::vector<Ref> temporaries;
  for (unsigned i = 0; i < f.vector; ++i) {
    const Operand& o = to.element(i);
    d.list.push_back(destination(o, type, true));
    temporaries.push_back(d.list.back());
    // Narrow signed loads fill 16- or 32-bit registers.
    const bool half = o.kind == Operand::Kind::reg && register_bytes(o) <= 2;
    d.c = {Ref::Kind::raw, half ? 1u : 0u};
  }
  d.list_results = f.vector;
  emit(std::move(d), f, cls_);
  for (unsigned i = 0; i < f.vector; ++i) finish_result(to.element(i), type, temporaries[i]);
}

void Decoder::store(const Statement& s) {
  count(s, 2, form_.has(kCacheHint) ? 3 : 2);
  const Operand& from = s.operands[1];
  if (from.count() != form_.vector) fail("wrong number of sources");
  Form f = form_;
  if (f.space() == Space::param && s.operands[0].parts.empty()) fail("no variable");
  if (f.space() == Space::param) f.spaces[0] = Space::local;  // an argument of an inlined call
  if (f.space() == Space::constant) fail("a store to .const");
  std::vector<Ref> values;
  for (unsigned i = 0; i < f.vector; ++i) {
    values.push_back(source(from.element(i), f.type(), true));
  }
  Draft d = draft(f, Kind::checked);
  d.a = address(s.operands[0], f.space(), &d);
  if (form_.space() == Space::param && !s.operands[0].parts.empty() &&
      s.operands[0].parts[0].kind == Operand::Kind::symbol &&
      is_kernel_param(s.operands[0].parts[0].id)) {
    fail("a store to a kernel parameter");
  }
  d.inst.extra = out_.memory_ordinals++;
  d.list = std::move(values);
  emit(std::move(d), f, cls_);
}

// list: results, first operands, second operands (cas only).
void Decoder::atomic(const Statement& s) {
  const bool result = form_.op == Op::atom;
  const bool cas = form_.atomic == Atomic::cas;
  const size_t first = result ? 1 : 0;
  const size_t operands = first + (cas ? 3 : 2);
  count(s, operands, operands + (form_.has(kCacheHint) ? 1 : 0));
  if (form_.atomic == Atomic::none) fail("no operation");
  Draft d = draft(form_, Kind::checked);
  d.a = address(s.operands[first], form_.space(), &d);
  d.inst.extra = out_.memory_ordinals++;
  const unsigned n = form_.vector;
  auto check = [&](const Operand& o) {
    if (o.count() != n) fail("wrong number of elements");
  };
  for (unsigned i = 0; result && i < n; ++i) {
    check(s.operands[0]);
    d.list.push_back(destination(s.operands[0].element(i), form_.type()));
  }
  d.list_results = static_cast<uint32_t>(d.list.size());
  for (size_t k = first + 1; k < operands; ++k) {
    check(s.operands[k]);
    for (unsigned i = 0; i < n; ++i) {
      d.list.push_back(source(s.operands[k].element(i), form_.type()));
    }
  }
  emit(std::move(d), form_, cls_);
}

// cp.async [shared], [global], size{, src-size or ignore-src}{, policy}
// list: global base; size operand or predicate. imm: offset in shared; the form's vector: size.
void Decoder::async_copy(const Statement& s) {
  out_.uses_async_copies = true;
  Form f = form_;
  if (f.op != Op::cp_async) {
    Draft d = draft(f);
    if (f.op == Op::cp_wait && f.has(kWaitGroup)) {
      count(s, 1, 1);
      d.inst.imm = static_cast<int64_t>(s.operands[0].bits);
    }
    return emit(std::move(d), f, cls_);
  }
  count(s, 3, 5);
  const Operand& size = s.operands[2];
  if (size.kind != Operand::Kind::imm || (size.bits != 4 && size.bits != 8 && size.bits != 16)) {
    fail("the copy size must be 4, 8 or 16");
  }
  f.vector = static_cast<uint8_t>(size.bits);
  Draft d = draft(f, Kind::checked);
  Draft from;
  d.a = address(s.operands[0], Space::shared, &d);
  d.inst.extra = out_.memory_ordinals++;
  d.list.push_back(address(s.operands[1], Space::global, &from));
  d.list.push_back(constant(static_cast<uint64_t>(from.inst.imm), 8));
  const size_t extra = s.operands.size() - 3 - (f.has(kCacheHint) ? 1 : 0);
  d.c = {Ref::Kind::raw, 0};  // 0: whole copy; 1: src-size; 2: ignore-src
  if (extra == 1) {
    const Operand& o = s.operands[3];
    const bool pred = o.kind == Operand::Kind::reg && text_.registers[o.id].type == Type::pred;
    d.list.push_back(pred ? predicate(o) : source(o, Type::b32));
    d.c.value = pred ? 2 : 1;
  }
  emit(std::move(d), f, cls_);
}

// prefetch, discard, applypriority do nothing; createpolicy gives an opaque number.
void Decoder::address_only(const Statement& s) {
  if (form_.op == Op::createpolicy) {
    Form f;
    f.op = Op::mov;
    f.types[0] = Type::b64;
    f.type_count = 1;
    Draft d = draft(f);
    d.d = destination(s.operands.at(0), Type::b64);
    d.a = constant(0, 8);
    return emit(std::move(d), f, cls_);
  }
  if (s.operands.empty() || s.operands[0].kind != Operand::Kind::address) fail("no address");
  Form f = form_;
  f.op = Op::prefetch;
  emit(draft(f, Kind::none), f, cls_);
}

}  // namespace sim
