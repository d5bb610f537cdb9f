// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file decodes branches, warp-wide instructions, barriers and the rest of control.
#include "sim/ptx/decode/decode.h"

namespace sim {

void Decoder::branch(const Statement& s) {
  count(s, form_.op == Op::brx ? 2 : 1, form_.op == Op::brx ? 2 : 1);
  const Operand& target = s.operands.back();
  if (target.kind != Operand::Kind::label) fail("the target is not a label");
  Draft d = draft(form_, form_.op == Op::brx ? Kind::branch_table : Kind::branch);
  if (form_.op == Op::brx) {
    int scope = s.scope;
    while (scope >= 0 && !text_.branch_tables.count({scope, target.name})) {
      scope = text_.scope_parents[scope];
    }
    if (scope < 0) fail("no .branchtargets table '" + target.name + "'");
    d.a = source(s.operands[0], Type::u32);
    d.table = target.name;
    d.scope = scope;
  } else {
    d.target = target.name;
  }
  emit(std::move(d), form_, cls_);
}

// Operands by instruction; the member mask of a .sync form is in Inst::c.
void Decoder::warp_op(const Statement& s) {
  const auto& o = s.operands;
  Form f = form_;
  const bool needs_sync = f.op != Op::activemask && f.op != Op::bar_warp;
  if (needs_sync && !f.has(kSync)) fail("only the .sync form is supported");
  Draft d = draft(f, Kind::converge);
  auto pair_result = [&](const Operand& to, Type type) {
    const bool pair = to.kind == Operand::Kind::pair;
    d.d = destination(pair ? to.parts[0] : to, type);
    return pair ? predicate_result(to.parts[1]) : Ref{Ref::Kind::raw, kNoSlot};
  };
  switch (f.op) {
    case Op::shfl: {
      count(s, 5, 5);
      const Ref p = pair_result(o[0], Type::b32);
      d.a = source(o[1], Type::b32);
      d.b = source(o[2], Type::b32);
      const Ref c = source(o[3], Type::b32);
      d.c = source(o[4], Type::b32);
      d.list = {c, p};
      break;
    }
    case Op::vote:
      count(s, 3, 3);
      d.d = f.has(kBallot) ? destination(o[0], Type::b32) : predicate_result(o[0]);
      d.a = predicate(o[1]);
      d.c = source(o[2], Type::b32);
      break;
    case Op::match:
      count(s, 3, 3);
      d.e = pair_result(o[0], Type::b32);
      d.a = source(o[1], f.type());
      d.c = source(o[2], Type::b32);
      break;
    case Op::redux:
      count(s, 3, 3);
      d.d = destination(o[0], f.type());
      d.a = source(o[1], f.type());
      d.c = source(o[2], Type::b32);
      break;
    case Op::elect:
      count(s, 2, 2);
      d.e = pair_result(o[0], Type::b32);
      d.c = source(o[1], Type::b32);
      break;
    case Op::activemask:
      count(s, 1, 1);
      d.inst.kind = Kind::simple;
      d.d = destination(o[0], Type::b32);
      break;
    default:
      count(s, 1, 1);
      d.inst.kind = Kind::bar_warp;
      d.c = source(o[0], Type::b32);
      break;
  }
  emit(std::move(d), f, cls_);
}

// d: result; a: barrier number; b: thread count or none; c: predicate; imm: 1 if .aligned.
void Decoder::barrier(const Statement& s) {
  const bool red = form_.has(kRed);
  const size_t first = red ? 1 : 0;
  const size_t last = s.operands.size() - (red ? 1 : 0);
  count(s, first + 1 + (red ? 1 : 0), first + 2 + (red ? 1 : 0));
  if (!red && !form_.has(kSync) && !form_.has(kArrive)) fail("unsupported form");
  if (form_.has(kArrive) && last - first != 2) fail("an arrival needs a thread count");
  Draft d = draft(form_, Kind::barrier);
  d.inst.imm = form_.has(kAligned) ? 1 : 0;
  d.a = source(s.operands[first], Type::b32);
  d.b = last - first == 2 ? source(s.operands[first + 1], Type::b32) : Ref{Ref::Kind::raw, kNoSlot};
  if (red) {
    d.d =
        form_.has(kPopc) ? destination(s.operands[0], Type::b32) : predicate_result(s.operands[0]);
    d.c = predicate(s.operands.back());
  }
  emit(std::move(d), form_, cls_);
}

void Decoder::control(const Statement& s) {
  Form f = form_;
  switch (f.op) {
    case Op::call:
      return call(s);
    case Op::vprintf:
    case Op::heap_malloc:
    case Op::heap_free:
    case Op::alloca_:
    case Op::stacksave:
    case Op::stackrestore:
      return stack(s);
    case Op::ret:
      if (f.has(kTo)) return stack(s);  // of a callee
      [[fallthrough]];
    case Op::exit:
      count(s, 0, 0);
      f.op = Op::exit;
      return emit(draft(f, Kind::exit), f, cls_);
    case Op::trap: {
      Draft d = draft(f, Kind::trap);
      d.inst.imm = f.has(kAny) ? 710 : 719;  // a failed assertion, or a bare trap
      if (!f.has(kAny)) count(s, 0, 0);
      for (const Operand& o : s.operands) {
        d.list.push_back(source(o, register_bytes(o) == 8 ? Type::b64 : Type::b32));
      }
      return emit(std::move(d), f, cls_);
    }
    case Op::brkpt:
      return emit(draft(f, Kind::none), f, cls_);
    case Op::nanosleep:
      return emit(draft(f, Kind::pause), f, cls_);
    case Op::fence:
      return emit(draft(f, Kind::fence), f, cls_);
    case Op::griddepcontrol:
      return emit(draft(f, Kind::dependents), f, cls_);
    case Op::pmevent:
      return emit(draft(f, Kind::none), f, cls_);
    default:
      fail("unsupported instruction");
  }
}

}  // namespace sim
