// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles the mbarrier instructions, lane by lane.
#include <string>

#include "sim/check/race.h"
#include "sim/exec/async/operands.h"
#include "sim/exec/grid_state.h"
#include "sim/exec/handlers.h"
#include "sim/exec/trace.h"

namespace sim::base {
namespace {

const Form& form(const Warp& w, const Inst& i) { return w.function->infos[i.info].form; }

// Tells a trace which phase of an mbarrier a wait found to be over.
void record_wait(const Warp& w, const Place& p, uint64_t phase) {
  if (!w.worker->recorder) return;
  w.worker->recorder->barrier(mbarrier_key(p.block->rank, p.offset), phase, 1);
}
// Tells a trace that a lane arrives at the current phase of an mbarrier.
void record_arrival(const Warp& w, Async& async, const Place& p) {
  if (const Mbarrier* m = w.worker->recorder ? async.find(*p.block, p.offset) : nullptr) {
    w.worker->recorder->signal(mbarrier_key(p.block->rank, p.offset), m->phase);
  }
}

Place barrier_at(const Operands& o, const Form& f, unsigned lane, bool remote) {
  return o.shared(0, 0, lane, 8, 8, remote && f.space() == Space::cluster);
}

// Count or bytes are in entry 2.
template <Op O>
void change(Warp& w, const Inst& i, uint32_t exec) {
  const Operands o(w, i);
  const Form& f = form(w, i);
  Async& async = *w.block->cluster->async;
  const bool remote = O == Op::mbarrier_expect_tx || O == Op::mbarrier_complete_tx;
  for (uint32_t rest = exec; rest; rest &= rest - 1) {
    const auto l = static_cast<unsigned>(__builtin_ctz(rest));
    const Place p = barrier_at(o, f, l, remote);
    if (!p.block) return;
    bool good = false;
    switch (O) {
      case Op::mbarrier_init:
        good = async.init(w, i, l, *p.block, p.offset, o.u32(2, l));
        break;
      case Op::mbarrier_inval:
        good = async.inval(w, i, l, *p.block, p.offset);
        break;
      case Op::mbarrier_expect_tx:
        good = async.expect(w, i, l, *p.block, p.offset, o.u32(2, l));
        break;
      default:
        good = async.expect(w, i, l, *p.block, p.offset, -int64_t{o.u32(2, l)});
        break;
    }
    if (!good && w.stop) return;
  }
}

void arrive(Warp& w, const Inst& i, uint32_t exec) {
  const Operands o(w, i);
  const Form& f = form(w, i);
  Async& async = *w.block->cluster->async;
  const bool expects = f.detail & kExpectTx;
  for (uint32_t rest = exec; rest; rest &= rest - 1) {
    const auto l = static_cast<unsigned>(__builtin_ctz(rest));
    const Place p = barrier_at(o, f, l, true);
    if (!p.block) return;
    record_arrival(w, async, p);
    if (expects && !async.expect(w, i, l, *p.block, p.offset, o.u32(2, l))) return;
    const uint32_t count = !expects && o.has(2) ? o.u32(2, l) : 1;
    uint64_t state = 0;
    async.arrive(w, i, l, *p.block, p.offset, count, f.op == Op::mbarrier_arrive_drop,
                 !(f.detail & kNoComplete), &state);
    if (w.stop) return;
    if (i.d != kNoSlot) cells<uint64_t>(w, i.d)[l] = state;
  }
}

// try_wait blocks while no lane's phase is over, but gives up early now and then, so that a missing
// retry shows: at most once between two events of the cluster.
void wait(Warp& w, const Inst& i, uint32_t exec) {
  const Operands o(w, i);
  const Form& f = form(w, i);
  Cluster& cluster = *w.block->cluster;
  Async& async = *cluster.async;
  uint32_t over = 0;
  const Mbarrier* acquired = nullptr;
  for (uint32_t rest = exec; rest; rest &= rest - 1) {
    const auto l = static_cast<unsigned>(__builtin_ctz(rest));
    const Place p = barrier_at(o, f, l, false);
    if (!p.block) return;
    Mbarrier* m = async.find(*p.block, p.offset);
    if (m) race_mbarrier_touch(w, i, l, p.offset, RaceUse::load, *p.block);
    if (!m) {
      report_text(w, i, Fault::mbarrier, l, p.offset, 8,
                  ("mbarrier at " + hex(p.offset) + ": not live: never initialised, or invalidated")
                      .c_str());
      return;
    }
    bool done = false;
    if (f.detail & kParity) {
      done = (m->phase & 1) != (o.u32(2, l) & 1);
    } else {
      const uint64_t phase = o.u64(2, l) >> 20;
      if (phase > m->phase || m->phase - phase > 1) {
        report_text(w, i, Fault::mbarrier_rule, l, p.offset, 8,
                    ("a wait with a state of phase " + std::to_string(phase) +
                     " of the mbarrier at " + hex(p.offset) + ", which is in phase " +
                     std::to_string(m->phase) + "; allowed: this phase or the one before")
                        .c_str());
        if (w.stop) return;
      }
      done = ((m->phase ^ phase) & 1) != 0;
    }
    if (!done) continue;
    record_wait(w, p, m->phase - 1);
    over |= 1u << l;
    async.observe(*m);
    if (m != acquired) race_mbarrier_acquire(m->race, w, i, l);
    acquired = m;
  }
  if (f.op == Op::mbarrier_try_wait && !over) {
    const bool early =
        !w.worker->recorder && w.spurious != cluster.events && next_random(cluster.random) % 4 == 0;
    w.spurious = cluster.events;
    if (!early) {
      w.blocked = true;
      return;
    }
  }
  if (!over && w.worker->recorder) w.worker->recorder->missed();
  w.preds[i.d] = (w.preds[i.d] & ~exec) | over;
}

void pending_count(Warp& w, const Inst& i, uint32_t exec) {
  const Operands o(w, i);
  for (uint32_t rest = exec; rest; rest &= rest - 1) {
    const auto l = static_cast<unsigned>(__builtin_ctz(rest));
    cells<uint32_t>(w, i.d)[l] = static_cast<uint32_t>(o.u64(0, l) & 0xFFFFF);
  }
}

// An arrival that follows the lane's earlier cp.async.
void arrive_after_copies(Warp& w, const Inst& i, uint32_t exec) {
  const Operands o(w, i);
  const Form& f = form(w, i);
  Async& async = *w.block->cluster->async;
  for (uint32_t rest = exec; rest; rest &= rest - 1) {
    const auto l = static_cast<unsigned>(__builtin_ctz(rest));
    const Place p = barrier_at(o, f, l, false);
    if (!p.block) return;
    record_arrival(w, async, p);
    if (!(f.detail & kNoinc) && !async.add_pending(w, i, l, *p.block, p.offset)) return;
    auto copy = std::make_unique<Copy>();
    copy->arrives = true;
    copy->warp = &w;
    copy->inst = &i;
    copy->lane = l;
    copy->lanes = 1u << l;
    copy->barrier_block = p.block;
    copy->barrier = p.offset;
    async.issue(std::move(copy));
    if (w.stop) return;
  }
}

}  // namespace

Place find_place(Warp& w, const Inst& i, unsigned lane, uint64_t address, bool generic,
                 uint32_t bytes, uint32_t align, bool remote) {
  const Cluster& cluster = *w.block->cluster;
  uint64_t a = address;
  if (generic) {
    a -= windows().shared;
    if (address < windows().shared || a >= kSharedWindow) {
      report(w, i, Fault::wrong_space, lane, address, bytes, Space::shared, true);
      return {};
    }
  }
  const uint64_t rank = a >> kRankShift;
  const uint64_t offset = a & ((1u << kRankShift) - 1);
  const bool own = rank == w.block->rank;
  const bool outside = rank >= cluster.size || (!own && !remote);
  Block* block = outside ? nullptr : cluster.blocks[rank];
  if (!block || offset < block->shared_begin || offset + bytes > block->shared_bytes) {
    report(w, i, Fault::out_of_bounds, lane, a, bytes, remote ? Space::cluster : Space::shared,
           true);
    return {};
  }
  if (offset % align != 0) {
    report(w, i, Fault::misaligned, lane, a, align, Space::shared, true);
    return {};
  }
  if (block->warps_done == block->warps) {
    report_text(w, i, Fault::late_arrival, lane, a, bytes,
                ("access to the shared memory of block " + std::to_string(rank) +
                 " of the cluster, which has ended")
                    .c_str());
    if (w.stop) return {};
  }
  return {block, static_cast<uint32_t>(offset)};
}

Handler resolve_mbarrier(const Form& f) {
  static constexpr HandlerRow<Op> kRows[] = {
      {Op::mbarrier_init, change<Op::mbarrier_init>},
      {Op::mbarrier_inval, change<Op::mbarrier_inval>},
      {Op::mbarrier_expect_tx, change<Op::mbarrier_expect_tx>},
      {Op::mbarrier_complete_tx, change<Op::mbarrier_complete_tx>},
      {Op::mbarrier_arrive, arrive},
      {Op::mbarrier_arrive_drop, arrive},
      {Op::mbarrier_test_wait, wait},
      {Op::mbarrier_try_wait, wait},
      {Op::mbarrier_pending_count, pending_count},
      {Op::cp_mbarrier_arrive, arrive_after_copies}};
  return find_handler(f.op, kRows);
}

}  // namespace sim::base

namespace sim {

std::string blocked_text(const Warp& w, const Inst& inst, const Strand& strand) {
  if (w.wgmma && wgmma_waits(w)) return "the rest of its warpgroup";
  const Form& f = w.function->infos[inst.info].form;
  if (f.op == Op::cluster_wait) return cluster_barrier_text(*w.block->cluster);
  if (f.op == Op::setmaxnreg) {
    return "registers: " + std::to_string(w.block->free_registers) +
           " of the block's are free, which is too few";
  }
  if (f.op != Op::mbarrier_try_wait) return "its instruction";
  const base::Operands o(const_cast<Warp&>(w), inst);
  const auto lane = static_cast<unsigned>(__builtin_ctz(strand.mask));
  const uint64_t address = o.address(0, 0, lane) - (o.generic(0) ? windows().shared : 0);
  const auto offset = static_cast<uint32_t>(address & ((1u << kRankShift) - 1));
  const Mbarrier* m = w.block->cluster->async->find(*w.block, offset);
  std::string text = "the mbarrier at " + hex(offset);
  if (!m) return text;
  return text + " (phase " + std::to_string(m->phase) + ", " + std::to_string(m->pending) + " of " +
         std::to_string(m->expected) + " arrivals missing, " + outstanding(m->tx) + ")";
}

}  // namespace sim
