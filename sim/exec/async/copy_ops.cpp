// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles cp.async: copies of 4, 8 or 16 bytes by lane, in groups by lane.
#include <algorithm>

#include "sim/exec/async/memory.h"
#include "sim/exec/async/operands.h"

namespace sim::base {
namespace {

uint64_t shared_address(const Warp& w, const Inst& i, unsigned lane) {
  if (i.b) return cells<uint64_t>(w, i.a)[lane] + static_cast<uint64_t>(i.imm);
  return cells<uint32_t>(w, i.a)[lane] + static_cast<uint32_t>(i.imm);
}

// Lanes move 128 bytes together; those that want other bytes of the same banks come later. Passes
// are counted, and those that no conflict would need.
void count_passes(Traffic* t, const uint32_t* unit, uint32_t exec, uint32_t size) {
  const uint32_t group = 128 / size;
  for (uint32_t begin = 0; begin < 32; begin += group) {
    uint32_t most = 0;
    for (uint32_t l = begin; l < begin + group; ++l) {
      uint32_t passes = exec >> l & 1;
      for (uint32_t k = begin; k < l && (exec >> l & 1); ++k) {
        passes += (exec >> k & 1) && unit[k] != unit[l] && unit[k] % group == unit[l] % group;
      }
      if (passes > most) most = passes;
    }
    t->wavefronts += most;
    t->conflicts += most ? most - 1 : 0;
  }
}

void count_shared(Warp& w, const uint32_t* unit, uint32_t exec, uint32_t size) {
  Traffic& t = w.worker->tally.shared_store;
  ++t.requests;
  t.bytes += static_cast<uint64_t>(__builtin_popcount(exec)) * size;
  count_passes(&t, unit, exec, size);
}

// A warp's request touches a sector once, however many lanes read of it: what check_global counted
// lane by lane is set right.
void count_sectors(Traffic& loads, const Traffic& before, const Copy& c) {
  uint64_t seen[32], bytes = 0;
  uint32_t count = 0;
  for (const auto& piece : c.pieces) {
    if (piece.fill) continue;
    const uint64_t sector = piece.from >> 5;  // a lane's bytes lie in one
    bytes += piece.bytes;
    uint32_t k = count;
    while (k > 0 && seen[k - 1] != sector) --k;
    if (k == 0) seen[count++] = sector;
  }
  loads.sectors = before.sectors + count;
  loads.minimum_sectors = before.minimum_sectors + std::min<uint64_t>(count, (bytes + 31) / 32);
}

// list: global base, offset, and for c = 1 the source size, for c = 2 the predicate that ignores
// it.
template <uint32_t Size>
void copy(Warp& w, const Inst& i, uint32_t exec) {
  const uint16_t* list = w.code->list_data + i.aux;
  const uint64_t* base = cells<uint64_t>(w, list[0]);
  const uint64_t offset = cells<uint64_t>(w, list[1])[0];
  const uint32_t* sizes = i.c == 1 ? cells<uint32_t>(w, list[2]) : nullptr;
  const uint32_t ignore = i.c == 2 ? pred(w, list[2]) : 0;
  Async& async = *w.block->cluster->async;
  auto c = std::make_unique<Copy>();
  c->path = Path::global_to_shared;
  c->by_thread = true;
  c->warp = &w;
  c->inst = &i;
  c->lanes = exec;
  c->lane = static_cast<unsigned>(__builtin_ctz(exec));
  c->target = w.block;
  Traffic& loads = w.worker->tally.global_load;
  const Traffic before = loads;
  ++loads.requests;
  uint32_t unit[32] = {};  // of shared memory
  for (uint32_t rest = exec; rest; rest &= rest - 1) {
    const auto l = static_cast<unsigned>(__builtin_ctz(rest));
    const Place p = find_place(w, i, l, shared_address(w, i, l), false, Size, Size, false);
    if (!p.block) return;
    const uint32_t n = ignore >> l & 1 ? 0 : sizes && sizes[l] < Size ? sizes[l] : Size;
    const uint64_t from = base[l] + offset;
    if (n && from % Size != 0) {
      report(w, i, Fault::misaligned, l, from, Size, Space::global, false);
      return;
    }
    if (n && !check_global(w, i, l, from, n, false)) return;
    unit[l] = p.offset / Size;
    if (n) c->pieces.push_back({from, p.offset, n, static_cast<uint8_t>(l)});
    if (n < Size) {
      c->pieces.push_back({0, p.offset + n, Size - n, static_cast<uint8_t>(l), true});
    }
    c->group[l] = async.group_of(w, l, false);
  }
  count_shared(w, unit, exec, Size);
  count_sectors(loads, before, *c);
  async.issue(std::move(c));
}

void commit(Warp& w, const Inst&, uint32_t exec) {
  w.block->cluster->async->commit(w, exec, false);
}

void wait(Warp& w, const Inst& i, uint32_t exec) {
  uint32_t newest[32];
  for (uint32_t& n : newest) n = static_cast<uint32_t>(i.imm);
  const bool everything = w.function->infos[i.info].form.has(kWaitAll);
  w.block->cluster->async->wait_copies(w, exec, newest, everything);
}

}  // namespace

Handler resolve_copy(const Form& f) {
  if (f.op == Op::cp_commit) return commit;
  if (f.op == Op::cp_wait) return wait;
  if (f.op != Op::cp_async) return nullptr;
  return f.vector == 4 ? copy<4> : f.vector == 8 ? copy<8> : f.vector == 16 ? copy<16> : nullptr;
}

}  // namespace sim::base
