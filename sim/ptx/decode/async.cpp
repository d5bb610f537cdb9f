// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file decodes asynchronous copies, mbarriers and clusters. All of them keep their operands in
// Function::lists, in the order that each function below names; an address takes two entries, base
// and offset. Bit k of Inst::imm: the k-th address has 64 bits; bit k + 8: it is generic.
#include "sim/ptx/decode/decode.h"

namespace sim {
namespace {

constexpr Ref kAbsent = {Ref::Kind::raw, kNoSlot};

bool in_shared(Space s) { return s == Space::shared || s == Space::cluster; }

}  // namespace

void Decoder::add_address(const Operand& o, Space space, Draft* d) {
  Operand plain = o;
  if (plain.parts.size() > 1) plain.parts.resize(1);
  Draft one;
  const bool wide_base = !plain.parts.empty() && plain.parts[0].kind == Operand::Kind::reg &&
                         register_bytes(plain.parts[0]) == 8;
  const Ref base = address(plain, space, &one);
  const bool wide = one.b.value == 1;
  unsigned k = 0;
  while (d->inst.b & (1u << k)) ++k;
  d->inst.b = static_cast<uint16_t>(d->inst.b | 1u << k);
  if (wide) d->inst.imm |= 1ll << k;
  // A symbol's address without a space is what a symbol is: an offset in its space.
  if (space == Space::generic && wide_base) d->inst.imm |= 1ll << (k + 8);
  d->list.push_back(base);
  d->list.push_back(constant(static_cast<uint64_t>(one.inst.imm), 8));
}

// mbarrier.*: address; then count or bytes; then state or parity; results are in Inst::d.
void Decoder::mbarrier(const Statement& s, Draft* d) {
  const auto& o = s.operands;
  const Space space = form_.space();
  if (space != Space::generic && !in_shared(space)) fail("unsupported form");
  switch (form_.op) {
    case Op::mbarrier_init:
    case Op::mbarrier_expect_tx:
    case Op::mbarrier_complete_tx:
      count(s, 2, 2);
      add_address(o[0], space, d);
      d->list.push_back(source(o[1], Type::b32));
      break;
    case Op::mbarrier_inval:
      count(s, 1, 1);
      add_address(o[0], space, d);
      break;
    case Op::cp_mbarrier_arrive:
      count(s, 1, 1);
      add_address(o[0], space, d);
      break;
    case Op::mbarrier_arrive:
    case Op::mbarrier_arrive_drop: {
      count(s, 1, 3);  // [addr] alone is the form without a result
      const bool result = o[0].kind != Operand::Kind::address;
      const size_t first = result ? 1 : 0;
      if (o.size() <= first) fail("no address");
      if (result && space == Space::cluster && o[0].kind != Operand::Kind::sink) {
        fail("an arrival through shared::cluster has no result");
      }
      add_address(o[first], space, d);
      const bool more = o.size() > first + 1;
      d->list.push_back(more ? source(o[first + 1], Type::b32) : kAbsent);
      if ((form_.detail & kExpectTx) && !more) fail("no number of bytes");
      if (result) d->d = destination(o[0], Type::b64);
      break;
    }
    case Op::mbarrier_test_wait:
    case Op::mbarrier_try_wait:
      count(s, 3, 4);  // a time limit may follow
      if (space == Space::cluster) fail("a wait is for the block's own mbarriers");
      d->d = predicate_result(o[0]);
      add_address(o[1], space, d);
      d->list.push_back(source(o[2], form_.detail & kParity ? Type::b32 : Type::b64));
      break;
    default:  // pending_count
      count(s, 2, 2);
      d->d = destination(o[0], Type::b32);
      d->list.push_back(source(o[1], Type::b64));
      break;
  }
}

// cp.async.bulk and cp.reduce.async.bulk: destination, source, bytes, mbarrier, mask of blocks or
// of bytes.
void Decoder::bulk(const Statement& s, Draft* d) {
  const auto& o = s.operands;
  if (form_.op == Op::bulk_prefetch) {
    count(s, 2, 3);
    add_address(o[0], Space::global, d);
    d->list.push_back(source(o[1], Type::b32));
    return;
  }
  const Space to = form_.spaces[0], from = form_.spaces[1];
  const bool load = in_shared(to) && from == Space::global;
  const bool store = to == Space::global && from == Space::shared;
  const bool between = to == Space::cluster && from == Space::shared;
  const bool barrier = (form_.detail & kCompleteTx) != 0;
  const bool reduces = form_.op == Op::bulk_reduce;
  if (form_.space_count != 2 || (!load && !store && !between) || (load && reduces) ||
      barrier == store || store != ((form_.detail & kBulkGroup) != 0) ||
      (reduces && form_.atomic == Atomic::none)) {
    fail("unsupported form");
  }
  const size_t extra =
      ((form_.detail & (kMulticast | kByteMask)) ? 1 : 0) + (form_.has(kCacheHint) ? 1 : 0);
  const size_t n = (barrier ? 4 : 3) + extra;
  count(s, n, n);
  add_address(o[0], to, d);
  add_address(o[1], from, d);
  d->list.push_back(source(o[2], Type::b32));
  if (barrier) {
    add_address(o[3], to, d);
  } else {
    d->list.insert(d->list.end(), 2, kAbsent);
  }
  // The policy stands before a byte mask and after a mask of blocks.
  const size_t mask = form_.detail & kMulticast ? 4 : n - 1;
  const bool masked = (form_.detail & (kMulticast | kByteMask)) != 0;
  d->list.push_back(masked ? source(o[mask], Type::b16) : kAbsent);
}

// cp.async.bulk.tensor and its relatives: shared address, map, mbarrier, mask of blocks,
// coordinates.
void Decoder::tensor_copy(const Statement& s, Draft* d) {
  const auto& o = s.operands;
  const bool prefetch = form_.op == Op::tensor_prefetch;
  const bool load = !prefetch && form_.space_count == 2 && in_shared(form_.spaces[0]) &&
                    form_.spaces[1] == Space::global;
  const bool store = !prefetch && form_.space_count == 2 && form_.spaces[0] == Space::global &&
                     form_.spaces[1] == Space::shared;
  const bool reduces = form_.op == Op::tensor_reduce;
  if (form_.k == 0 || (!prefetch && !load && !store) || (reduces && !store) ||
      (reduces && form_.atomic == Atomic::none) || load != ((form_.detail & kCompleteTx) != 0) ||
      store != ((form_.detail & kBulkGroup) != 0)) {
    fail("unsupported form");
  }
  const size_t extra = (form_.detail & kMulticast ? 1 : 0) + (form_.has(kCacheHint) ? 1 : 0);
  const size_t n = (load ? 3 : store ? 2 : 1) + extra;
  count(s, n, n);
  const Operand& map = load ? o[1] : o[0];
  if (load) add_address(o[0], form_.spaces[0], d);
  if (store) add_address(o[1], Space::shared, d);
  if (prefetch) d->list.insert(d->list.end(), 2, kAbsent);
  if (map.kind != Operand::Kind::address || map.parts.size() < 2) fail("no coordinates");
  add_address(map, Space::generic, d);
  if (load) {
    add_address(o[2], form_.spaces[0], d);
  } else {
    d->list.insert(d->list.end(), 2, kAbsent);
  }
  d->list.push_back(form_.detail & kMulticast ? source(o[3], Type::b16) : kAbsent);
  const Operand& at = map.parts[1];
  const std::vector<Operand> one = {at};
  const auto& coordinates = at.kind == Operand::Kind::vector ? at.parts : one;
  if (coordinates.size() != form_.k) fail(std::to_string(coordinates.size()) + " coordinates");
  for (const Operand& c : coordinates) d->list.push_back(source(c, Type::b32));
}

void Decoder::asynchronous(const Statement& s) {
  const auto& o = s.operands;
  Form f = form_;
  Kind kind = Kind::checked;
  if (f.op == Op::mbarrier_try_wait || f.op == Op::cluster_wait) kind = Kind::blocking;
  Draft d = draft(f, kind);
  d.inst.b = 0;
  d.inst.extra = out_.memory_ordinals++;
  out_.uses_async_copies = true;
  Ref converge = {};
  switch (f.op) {
    case Op::bulk_copy:
    case Op::bulk_reduce:
    case Op::bulk_prefetch:
      bulk(s, &d);
      break;
    case Op::tensor_copy:
    case Op::tensor_reduce:
    case Op::tensor_prefetch:
      tensor_copy(s, &d);
      break;
    case Op::bulk_commit:
      count(s, 0, 0);
      break;
    case Op::bulk_wait:
      count(s, 1, 1);
      d.list.push_back(source(o[0], Type::b32));
      break;
    case Op::st_async:
    case Op::red_async: {
      // Destination, mbarrier, values.
      count(s, 3, 3);
      if (f.space() != Space::cluster || !(f.detail & kCompleteTx)) fail("unsupported form");
      add_address(o[0], Space::cluster, &d);
      add_address(o[2], Space::cluster, &d);
      const std::vector<Operand> one = {o[1]};
      const auto& values = o[1].kind == Operand::Kind::vector ? o[1].parts : one;
      if (values.size() != f.vector) fail("wrong number of elements");
      for (const Operand& v : values) d.list.push_back(source(v, f.type()));
      break;
    }
    case Op::tensormap_replace:
      // Address, ordinal, value.
      count(s, 2, 3);
      add_address(o[0], f.space(), &d);
      d.list.push_back(o.size() == 3 ? source(o[1], Type::b32) : kAbsent);
      d.list.push_back(source(o.back(), f.last_type() == Type::b64 ? Type::b64 : Type::b32));
      break;
    case Op::tensormap_copy:
      count(s, 3, 3);
      add_address(o[0], Space::global, &d);
      add_address(o[1], Space::shared, &d);
      d.list.push_back(source(o[2], Type::b32));
      break;
    case Op::cluster_arrive:
    case Op::cluster_wait:
      count(s, 0, 0);
      if (f.op == Op::cluster_arrive && f.has(kAligned)) converge = constant(~0u, 4);
      break;
    case Op::mapa:
    case Op::getctarank: {
      const bool wide = f.type() == Type::u64;
      const Type type = wide ? Type::b64 : Type::b32;
      count(s, f.op == Op::mapa ? 3 : 2, f.op == Op::mapa ? 3 : 2);
      d.d = destination(o[0], f.op == Op::mapa ? type : Type::b32);
      Type address = type;
      if (f.op == Op::getctarank) address = f.space() == Space::cluster ? Type::b32 : Type::b64;
      const bool symbol = o[1].kind == Operand::Kind::symbol;
      if (o[1].kind == Operand::Kind::reg)
        address = register_bytes(o[1]) == 8 ? Type::b64 : Type::b32;
      d.list.push_back(symbol ? this->symbol(o[1], 4) : source(o[1], address));
      d.list.push_back(f.op == Op::mapa ? source(o[2], Type::b32) : kAbsent);
      d.inst.imm = !symbol && address == Type::b64;
      if (f.op == Op::getctarank) d.inst.kind = Kind::simple;
      break;
    }
    case Op::setmaxnreg:
      count(s, 1, 1);
      d.list.push_back(source(o[0], Type::b32));
      d.inst.kind = Kind::blocking;
      break;
    default:
      mbarrier(s, &d);
      break;
  }
  if (converge.kind != Ref::Kind::none) {
    d.inst.kind = Kind::converge;
    d.c = converge;
  }
  emit(std::move(d), f, cls_);
}

}  // namespace sim
