// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Bulk copies without a tensor map, st.async and red.async, and the groups of bulk copies.
#include <string>

#include "sim/check/race.h"
#include "sim/exec/async/bulk.h"
#include "sim/exec/async/memory.h"
#include "sim/exec/async/reduce.h"
#include "sim/exec/handlers.h"
#include "sim/exec/trace.h"

namespace sim::base {
namespace {

uint32_t bytes_of(const Copy& c) {
  uint32_t bytes = 0;
  for (const Piece& p : c.pieces) bytes += p.bytes;
  return bytes;
}

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

// One end of a bulk copy: an offset in a block's shared memory, or a global address.
struct End {
  bool good;  // false: a finding was reported
  Block* block;
  uint64_t address;
};
End end_of(Warp& w, const Inst& i, unsigned l, Space space, unsigned operand, unsigned n,
           uint32_t bytes, bool write) {
  const Operands o(w, i);
  if (space != Space::global) {
    const Place p = o.shared(operand, n, l, bytes, 16, write && space == Space::cluster);
    return {p.block != nullptr, p.block, p.offset};
  }
  const uint64_t address = o.address(operand, n, l);
  if (address % 16 != 0) {
    report(w, i, Fault::misaligned, l, address, 16, Space::global, write);
    return {false, nullptr, address};
  }
  return {!bytes || check_global(w, i, l, address, bytes, write), nullptr, address};
}

void bulk_lane(Warp& w, const Inst& i, unsigned l) {
  const Operands o(w, i);
  const Form& f = w.function->infos[i.info].form;
  const Space to = f.spaces[0], from = f.spaces[1];
  const uint32_t bytes = o.u32(4, l);
  if (bytes % 16 != 0)
    return refuse(w, i, l, bytes,
                  std::to_string(bytes) + " bytes; a bulk copy needs a multiple of 16");
  Copy proto = new_copy(w, i, l);
  // In order of the operands: addresses 0 (destination), 1 (source), 2 (mbarrier).
  const End source = end_of(w, i, l, from, 2, 1, bytes, false);
  if (!source.good) return;
  const End target = end_of(w, i, l, to, 0, 0, bytes, true);
  if (!target.good) return;
  proto.source = source.block;
  proto.target = target.block;
  proto.path = to == Space::global     ? Path::shared_to_global
               : from == Space::global ? Path::global_to_shared
                                       : Path::shared_to_shared;
  if (f.op == Op::bulk_reduce) {
    proto.reduce = f.atomic;
    proto.type = f.type();
  }
  add_pieces(&proto, source.address, target.address, bytes,
             f.detail & kByteMask ? o.u32(7, l) & 0xFFFF : 0xFFFF);
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
    if (bytes && !prefetch_global(w, i, l, at, bytes)) return;
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
  if (Recorder* recorder = w.worker->recorder) {
    recorder->copy(bytes ? bytes : bytes_of(copy));
    const uint32_t ranks = multicast ? multicast : barrier.block ? 1u << barrier.block->rank : 0;
    for (uint32_t rank = 0; rank < cluster.size; ++rank) {
      if (!(ranks >> rank & 1)) continue;
      const Mbarrier* m = async.find(*cluster.blocks[rank], barrier.offset);
      if (m) recorder->signal(mbarrier_key(rank, barrier.offset), m->phase);
    }
  }
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
  static constexpr HandlerRow<Op> kRows[] = {
      {Op::bulk_copy, bulk},     {Op::bulk_reduce, bulk}, {Op::bulk_prefetch, prefetch},
      {Op::bulk_commit, commit}, {Op::bulk_wait, wait},   {Op::st_async, element},
      {Op::red_async, element}};
  const Handler handler = find_handler(f.op, kRows);
  return handler ? handler : resolve_tensor_copy(f);
}

}  // namespace sim::base
