// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Bulk copies without a tensor map, st.async and red.async, and the groups of bulk copies.
#include <string>

#include "sim/check/race.h"
#include "sim/exec/async/bulk.h"
#include "sim/exec/async/memory.h"
#include "sim/exec/async/reduce.h"

namespace sim::base {
namespace {

void refuse(Warp& w, const Inst& i, unsigned lane, uint64_t value, const std::string& what) {
  report_text(w, i, Fault::bulk, lane, value, 0, what.c_str());
}

// Bytes that one piece holds: small enough that pieces of several copies interleave in time.
constexpr uint32_t kPiece = 128;

void add_pieces(Copy* c, uint64_t from, uint64_t to, uint32_t bytes, uint32_t mask) {
  // cp_mask: bit k keeps byte k of each 16.
  if (mask != 0xFFFF) {
    for (uint32_t k = 0; k < bytes; ++k) {
      if (mask >> (k % 16) & 1) {
        c->pieces.push_back({from + k, to + k, 1, static_cast<uint8_t>(c->lane)});
      }
    }
    return;
  }
  for (uint32_t k = 0; k < bytes; k += kPiece) {
    const uint32_t n = bytes - k < kPiece ? bytes - k : kPiece;
    c->pieces.push_back({from + k, to + k, n, static_cast<uint8_t>(c->lane)});
  }
}

Type reduction_type(const Form& f) { return f.type(); }

void bulk_lane(Warp& w, const Inst& i, unsigned l) {
  const Operands o(w, i);
  const Form& f = w.function->infos[i.info].form;
  const Space to = f.spaces[0], from = f.spaces[1];
  const uint32_t bytes = o.u32(4, l);
  if (bytes % 16 != 0)
    return refuse(w, i, l, bytes,
                  std::to_string(bytes) + " bytes; a bulk copy needs a multiple of 16");
  Copy proto = new_copy(w, i, l);
  uint64_t source = 0, target = 0;
  // In order of the operands: addresses 0 (destination), 1 (source), 2 (mbarrier).
  if (from == Space::global) {
    source = o.address(2, 1, l);
    if (source % 16 != 0)
      return report(w, i, Fault::misaligned, l, source, 16, Space::global, false);
    if (bytes && !check_global(w, i, l, source, bytes, false)) return;
  } else {
    const Place p = o.shared(2, 1, l, bytes, 16, false);
    if (!p.block) return;
    proto.source = p.block;
    source = p.offset;
  }
  if (to == Space::global) {
    target = o.address(0, 0, l);
    if (target % 16 != 0)
      return report(w, i, Fault::misaligned, l, target, 16, Space::global, true);
    if (bytes && !check_global(w, i, l, target, bytes, true)) return;
  } else {
    const Place p = o.shared(0, 0, l, bytes, 16, to == Space::cluster);
    if (!p.block) return;
    proto.target = p.block;
    target = p.offset;
  }
  proto.path = to == Space::global     ? Path::shared_to_global
               : from == Space::global ? Path::global_to_shared
                                       : Path::shared_to_shared;
  if (f.op == Op::bulk_reduce) {
    proto.reduce = f.atomic;
    proto.type = reduction_type(f);
  }
  add_pieces(&proto, source, target, bytes, f.detail & kByteMask ? o.u32(7, l) & 0xFFFF : 0xFFFF);
  const Place barrier =
      f.detail & kCompleteTx ? o.shared(5, 2, l, 8, 8, to == Space::cluster) : Place{};
  if ((f.detail & kCompleteTx) && !barrier.block) return;
  send(std::move(proto), barrier, bytes, f.detail & kMulticast ? o.u32(7, l) & 0xFFFF : 0);
}

void bulk(Warp& w, const Inst& i, uint32_t exec) {
  for (uint32_t rest = exec; rest && !w.stop; rest &= rest - 1) {
    bulk_lane(w, i, static_cast<unsigned>(__builtin_ctz(rest)));
  }
}

void prefetch(Warp& w, const Inst& i, uint32_t exec) {
  const Operands o(w, i);
  for (uint32_t rest = exec; rest; rest &= rest - 1) {
    const auto l = static_cast<unsigned>(__builtin_ctz(rest));
    const uint64_t at = o.address(0, 0, l);
    const uint32_t bytes = o.u32(2, l);
    if (at % 16 || bytes % 16) return refuse(w, i, l, at, "a bulk prefetch needs multiples of 16");
    if (bytes && !find_region(w, i, at, at + bytes)) {
      return report(w, i, Fault::out_of_bounds, l, at, bytes, Space::global, false);
    }
  }
}

void commit(Warp& w, const Inst&, uint32_t exec) { w.block->cluster->async->commit(w, exec, true); }

void wait(Warp& w, const Inst& i, uint32_t exec) {
  const Operands o(w, i);
  uint32_t newest[32];
  for (unsigned l = 0; l < 32; ++l) newest[l] = o.u32(0, l);
  const bool read_only = w.function->infos[i.info].form.detail & kReadOnly;
  w.block->cluster->async->wait_bulk(w, exec, newest, read_only);
}

// st.async and red.async: values from registers, read at the issue.
void element(Warp& w, const Inst& i, uint32_t exec) {
  const Operands o(w, i);
  const Form& f = w.function->infos[i.info].form;
  const uint32_t size = type_bytes(f.type()), bytes = size * f.vector;
  for (uint32_t rest = exec; rest; rest &= rest - 1) {
    const auto l = static_cast<unsigned>(__builtin_ctz(rest));
    const Place p = o.shared(0, 0, l, bytes, bytes, true);
    const Place barrier = p.block ? o.shared(2, 1, l, 8, 8, true) : Place{};
    if (!p.block || !barrier.block) return;
    if (p.block != barrier.block) {
      return refuse(w, i, l, p.offset, "the mbarrier is not in the block of the destination");
    }
    Copy c = new_copy(w, i, l);
    c.target = p.block;
    c.path = Path::shared_to_shared;
    c.fetched = true;
    if (f.op == Op::red_async) {
      c.reduce = f.atomic;
      c.type = f.type();
    }
    for (unsigned k = 0; k < f.vector; ++k) {
      const uint64_t v = size == 8 ? o.u64(4 + k, l) : o.u32(4 + k, l);
      for (uint32_t b = 0; b < size; ++b) c.data.push_back(static_cast<uint8_t>(v >> (8 * b)));
    }
    c.defined.assign(bytes, 1);
    c.pieces.push_back({0, p.offset, bytes, static_cast<uint8_t>(l), true});
    send(std::move(c), barrier, bytes, 0);
    if (w.stop) return;
  }
}

}  // namespace

Copy new_copy(Warp& w, const Inst& i, unsigned lane) {
  Copy c;
  c.warp = &w;
  c.inst = &i;
  c.lane = lane;
  c.lanes = 1u << lane;
  return c;
}

void send(Copy copy, Place barrier, uint32_t bytes, uint32_t multicast) {
  Warp& w = *copy.warp;
  Cluster& cluster = *w.block->cluster;
  Async& async = *cluster.async;
  if (!barrier.block) {
    copy.in_group = true;
    copy.group[copy.lane] = async.group_of(w, copy.lane, true);
    async.issue(std::make_unique<Copy>(std::move(copy)));
    return;
  }
  copy.barrier = barrier.offset;
  copy.barrier_bytes = bytes;
  race_mbarrier_touch(w, *copy.inst, copy.lane, barrier.offset, RaceUse::load, *barrier.block);
  if (!multicast) {
    if (copy.target != barrier.block) {
      return refuse(w, *copy.inst, copy.lane, barrier.offset,
                    "the mbarrier is not in the block of the destination");
    }
    copy.barrier_block = barrier.block;
    async.issue(std::make_unique<Copy>(std::move(copy)));
    return;
  }
  // The same offsets in every block that the mask names; each lands at its own time.
  for (uint32_t rank = 0; rank < 16; ++rank) {
    if (!(multicast >> rank & 1)) continue;
    if (rank >= cluster.size) {
      return refuse(w, *copy.inst, copy.lane, multicast,
                    "the multicast mask names block " + std::to_string(rank) + " of a cluster of " +
                        std::to_string(cluster.size));
    }
    auto one = std::make_unique<Copy>(copy);
    one->target = one->barrier_block = cluster.blocks[rank];
    async.issue(std::move(one));
  }
}

Handler resolve_bulk(const Form& f) {
  const bool reduces = f.op == Op::bulk_reduce || f.op == Op::red_async;
  if (reduces && !can_reduce(f.type(), f.atomic)) return nullptr;
  switch (f.op) {
    case Op::bulk_copy:
    case Op::bulk_reduce:
      return bulk;
    case Op::bulk_prefetch:
      return prefetch;
    case Op::bulk_commit:
      return commit;
    case Op::bulk_wait:
      return wait;
    case Op::st_async:
    case Op::red_async:
      return element;
    default:
      return resolve_tensor_copy(f);
  }
}

}  // namespace sim::base
