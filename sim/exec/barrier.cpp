// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles bar and barrier: sixteen per block, counted in warps.
#include <string>

#include "sim/check/race.h"
#include "sim/exec/grid_state.h"
#include "sim/exec/trace.h"

namespace sim {
namespace {

uint32_t cell(const Warp& w, uint16_t slot, unsigned lane) {
  return reinterpret_cast<const uint32_t*>(w.regs + slot * static_cast<size_t>(kSlotBytes))[lane];
}

uint32_t predicate(const Warp& w, uint16_t p) {
  const uint32_t v = w.preds[p & ~kPredNegate];
  return (p & kPredNegate) ? ~v : v;
}

const Form& form(const Warp& w, const Inst& i) { return w.function->infos[i.info].form; }

void write_result(Warp& w, const Inst& i, uint32_t mask, const Barrier& b) {
  const Form& f = form(w, i);
  if (!f.has(kRed)) return;
  if (!f.has(kPopc)) {
    const bool r = f.combine == Bool::and_ ? b.all : b.any;
    w.preds[i.d] = (w.preds[i.d] & ~mask) | (r ? mask : 0);
    return;
  }
  auto* d = reinterpret_cast<uint32_t*>(w.regs + i.d * static_cast<size_t>(kSlotBytes));
  for (unsigned l = 0; l < 32; ++l) {
    if (mask >> l & 1) d[l] = b.popc;
  }
}

void release_strands(Warp& w, const Barrier* b) {
  for (int k = 0; k < w.strand_count; ++k) {
    Strand& s = w.strands[k];
    if (s.parked != Parked::barrier) continue;
    if (b) write_result(w, w.function->code[s.pc], s.mask, *b);
    s.parked = Parked::no;
    ++s.pc;
  }
  w.state = WarpState::runnable;
}

void complete(Block& block, Barrier& b) {
  if (!b.expected && block.warps_done) report_left_barrier(block, b);
  race_barrier_complete(block, static_cast<uint32_t>(&b - block.barriers), b.waiting);
  for (uint32_t k = 0; k < block.warps; ++k) {
    if (b.waiting >> k & 1) release_strands(block.warp[k], &b);
  }
  b = Barrier{};
}

bool is_complete(const Block& block, const Barrier& b) {
  if (b.arrived == 0) return false;
  return b.arrived >= (b.expected ? b.expected : block.warps - block.warps_done);
}

}  // namespace

void recheck_barriers(Block& block) {
  for (Barrier& b : block.barriers) {
    if (!b.expected && is_complete(block, b)) complete(block, b);
  }
}

// All live lanes of the warp are parked at barriers; `strand` is one of them.
void arrive_at_barrier(Warp& w, const Inst& inst, Strand& strand) {
  Block& block = *w.block;
  const auto lane = static_cast<unsigned>(__builtin_ctz(strand.mask));
  const Form& f = form(w, inst);
  const uint32_t id = cell(w, inst.a, lane);
  const uint32_t threads = inst.b == kNoSlot ? 0 : cell(w, inst.b, lane);
  const uint32_t expected = threads / 32;
  const uint8_t mode = f.has(kRed) ? 2 : 1;
  const bool bad_count = inst.b != kNoSlot && (threads % 32 != 0 || threads == 0);
  auto refuse = [&](const std::string& what, Fault kind = Fault::barrier) {
    report_text(w, inst, kind, lane, id, threads, what.c_str());
  };
  auto name = [&] { return "barrier " + std::to_string(id); };
  auto warp = [&] { return "warp " + std::to_string(w.index); };
  if (id > 15) return refuse(name() + " does not exist: a block has barriers 0 to 15");
  if (bad_count) {
    return refuse(name() + " with a count of " + std::to_string(threads) +
                  " threads: it must be a positive multiple of 32");
  }
  Barrier& b = block.barriers[id];
  const uint64_t me = 1ull << w.index;
  // A whole-block barrier written with its count is the same barrier.
  auto warps = [&](uint32_t count) { return count ? count : block.warps; };
  const bool checked = !view(*w.worker).check_nothing;  // hardware counts arrivals, whosever
  if (checked && b.arrived && warps(b.expected) != warps(expected)) {
    return refuse(warp() + " brings a count of " + std::to_string(32 * warps(expected)) +
                  " threads to " + name() + ", which others reached with " +
                  std::to_string(32 * warps(b.expected)));
  }
  if (checked && b.arrived && b.mode != mode) {
    return refuse(warp() + " uses " + name() + (mode == 2 ? " with .red" : " with sync or arrive") +
                  " in a phase in which others use it with " +
                  (mode == 2 ? "sync or arrive" : ".red"));
  }
  // A warp that arrived may wait for the same phase: FlashAttention-3 opens its first turn so.
  if ((b.seen & me) && f.has(kArrive)) {
    refuse(warp() + " arrives twice at " + name() +
               " before the phase is over: " + std::to_string(b.arrived) + " of " +
               std::to_string(warps(b.expected)) + " warps have arrived",
           Fault::repeated_arrive);
    if (w.stop) return;
  }
  if (w.worker->recorder) w.worker->recorder->barrier(id, 0, threads);
  if (b.arrived == 0) b.expected = expected;
  b.mode = mode;
  b.seen |= me;
  race_barrier_arrive(w, id);
  ++b.arrived;
  if (mode == 2) {
    const uint32_t p = predicate(w, inst.c) & w.live;
    b.popc += static_cast<uint32_t>(__builtin_popcount(p));
    b.all &= p == w.live;
    b.any |= p != 0;
  }
  if (f.has(kArrive)) {
    release_strands(w, nullptr);
  } else {
    b.waiting |= me;
    w.state = WarpState::parked;
  }
  if (is_complete(block, b)) complete(block, b);
}

}  // namespace sim
