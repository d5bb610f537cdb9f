// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Decoding of mov, cvt, cvta, isspacep and special registers.
#include <unordered_map>

#include "sim/exec/warp.h"
#include "sim/ptx/decode.h"
#include "sim/ptx/special.h"

namespace sim {

int64_t Decoder::special_register(const std::string& name) const {
  static const std::unordered_map<std::string, Special> kNames = {
      {"%tid.x", Special::tid_x},
      {"%tid.y", Special::tid_y},
      {"%tid.z", Special::tid_z},
      {"%ntid.x", Special::ntid_x},
      {"%ntid.y", Special::ntid_y},
      {"%ntid.z", Special::ntid_z},
      {"%ctaid.x", Special::ctaid_x},
      {"%ctaid.y", Special::ctaid_y},
      {"%ctaid.z", Special::ctaid_z},
      {"%nctaid.x", Special::nctaid_x},
      {"%nctaid.y", Special::nctaid_y},
      {"%nctaid.z", Special::nctaid_z},
      {"%laneid", Special::laneid},
      {"%warpid", Special::warpid},
      {"%nwarpid", Special::nwarpid},
      {"%smid", Special::smid},
      {"%nsmid", Special::nsmid},
      {"%gridid", Special::gridid},
      {"%lanemask_eq", Special::lanemask_eq},
      {"%lanemask_le", Special::lanemask_le},
      {"%lanemask_lt", Special::lanemask_lt},
      {"%lanemask_ge", Special::lanemask_ge},
      {"%lanemask_gt", Special::lanemask_gt},
      {"%clock", Special::clock},
      {"%clock_hi", Special::clock_hi},
      {"%clock64", Special::clock64},
      {"%globaltimer", Special::globaltimer},
      {"%globaltimer_lo", Special::globaltimer_lo},
      {"%globaltimer_hi", Special::globaltimer_hi},
      {"%dynamic_smem_size", Special::dynamic_smem_size},
      {"%total_smem_size", Special::total_smem_size},
      {"%aggr_smem_size", Special::total_smem_size},
      {"%clusterid.x", Special::clusterid_x},
      {"%clusterid.y", Special::clusterid_y},
      {"%clusterid.z", Special::clusterid_z},
      {"%nclusterid.x", Special::nclusterid_x},
      {"%nclusterid.y", Special::nclusterid_y},
      {"%nclusterid.z", Special::nclusterid_z},
      {"%cluster_ctaid.x", Special::cluster_ctaid_x},
      {"%cluster_ctaid.y", Special::cluster_ctaid_y},
      {"%cluster_ctaid.z", Special::cluster_ctaid_z},
      {"%cluster_nctaid.x", Special::cluster_nctaid_x},
      {"%cluster_nctaid.y", Special::cluster_nctaid_y},
      {"%cluster_nctaid.z", Special::cluster_nctaid_z},
      {"%is_explicit_cluster", Special::is_explicit_cluster},
      {"%cluster_ctarank", Special::cluster_ctarank},
      {"%cluster_nctarank", Special::cluster_nctarank}};
  const auto it = kNames.find(name);
  if (it == kNames.end()) fail("unsupported special register '" + name + "'");
  return static_cast<int64_t>(it->second);
}

void Decoder::mov(const Statement& s) {
  count(s, 2, 2);
  const Operand& to = s.operands[0];
  const Operand& from = s.operands[1];
  const Type type = form_.type();
  Form f = form_;
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
  Form f;
  f.op = form_.has(kTo) ? Op::sub : Op::add;
  f.types[0] = Type::u64;
  f.type_count = 1;
  Operand from = s.operands[1];
  Draft d = draft(f);
  d.d = destination(s.operands[0], Type::u64);
  d.a = source(from, Type::u64);
  d.b = constant(base, 8);
  emit(std::move(d), f, cls_);
}

// True where the address lies in [aux-list low, high), or for .global outside all windows.
void Decoder::isspacep(const Statement& s) {
  count(s, 2, 2);
  uint64_t low = 0, high = 0;
  const Windows& w = windows();
  switch (form_.space()) {
    case Space::shared:
    case Space::cluster:
      low = w.shared;
      high = w.local;
      break;
    case Space::local:
      low = w.local;
      high = w.param;
      break;
    case Space::param:
      low = w.param;
      high = w.end;
      break;
    case Space::global:
      low = w.shared;
      high = w.end;
      break;
    default:
      fail("unsupported form");
  }
  Draft d = draft(form_);
  d.d = predicate_result(s.operands[0]);
  d.a = source(s.operands[1], Type::u64);
  d.b = constant(low, 8);
  d.c = constant(high, 8);
  emit(std::move(d), form_, cls_);
}

}  // namespace sim
