// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file says which unit an instruction keeps busy, when its result is there, and whom it frees.
#include <algorithm>

#include "sim/clock/engine_state.h"

namespace sim::clock {
namespace {

constexpr double kOperandsRead = 12;  // until a store has read its registers
constexpr double kSkipped = 4;        // an instruction whose guard held all lanes back
constexpr double kWindow = 3;         // cycles in which an instruction reads its registers [huerta]
constexpr double kHalfPipe = 2;       // cycles of an instruction in 16 lanes

bool reads_in_window(Unit unit) {
  return unit == Unit::fma || unit == Unit::heavy || unit == Unit::alu || unit == Unit::half ||
         unit == Unit::fp64 || unit == Unit::tensor;
}

}  // namespace

// The multiply-adds of float32 have two pipes of 16 lanes on Hopper, one of which multiplies
// integers too, and that one alone on Ampere.
size_t Engine::pipe(const Part& part, const Op& op) const {
  constexpr auto kFma = static_cast<size_t>(Unit::fma), kHeavy = static_cast<size_t>(Unit::heavy);
  if (op.unit != Unit::fma) return static_cast<size_t>(op.unit);
  const bool both = machine_.cycles[kFma] < kHalfPipe;
  return both && part.free[kFma] <= part.free[kHeavy] ? kFma : kHeavy;
}

// Returns when the unit and the ports of the registers can take the instruction.
double Engine::unit_free(const Part& part, const Op& op) const {
  double free = part.free[pipe(part, op)];
  if (op.unit == Unit::wgmma) free -= op.tensor / machine_.tensor_rate;  // one may wait
  if (op.unit == Unit::tensor) free -= 0.99;  // products need not begin on whole cycles
  if (!reads_in_window(op.unit)) return free;
  for (int bank = 0; bank < 2; ++bank) {
    const double reads = std::min<double>(op.bank_reads[bank], kWindow);
    if (reads > 0) free = std::max(free, part.bank_free[bank] + reads - kWindow);
  }
  return free;
}

void Engine::read_registers(Part& part, const Op& op, double time) const {
  if (!reads_in_window(op.unit)) return;
  for (int bank = 0; bank < 2; ++bank) {
    part.bank_free[bank] = std::max(part.bank_free[bank], time) + op.bank_reads[bank];
  }
}

double Engine::multiply(WarpRun& w, const Op& op, double time) {
  double& free = part(w).free[static_cast<int>(op.unit)];
  const double begin = std::max(time, free);
  double cycles = op.tensor / machine_.tensor_rate;
  if (op.unit == Unit::tensor) {
    cycles *= machine_.mma_slowdown;
    free = begin + cycles;
    result_.busy[static_cast<size_t>(op.unit)] += cycles;
    for (unsigned r = 0; r < op.result_count; ++r) {
      w.written[(op.result + r) & 255] = begin + machine_.mma_latency;
    }
    interval(w, begin, free, static_cast<uint8_t>(op.unit));
    return free;
  }
  // The four warps of a warpgroup read A, 64 rows of 32 bytes, and B, n of them, together.
  const double passes = ((op.factors_in_registers ? 0 : 16) + op.columns / 4.0) / 4;
  free = std::max(begin + cycles, memory(w).shared(begin, passes));
  result_.busy[static_cast<size_t>(op.unit)] += cycles;
  // This warp's rows are there when the others' factors are read too.
  w.product = std::max({w.product, free, begin + 4 * passes});
  interval(w, begin, free, static_cast<uint8_t>(op.unit));
  return free;
}

double Engine::execute_memory(WarpRun& w, const Op& op, double time) {
  const Effect* e = w.step.effect;
  if (e && e->lanes == 0) return time + kSkipped;
  const double passes = e ? std::max(1u, e->wavefronts) : 1;
  switch (op.unit) {
    case Unit::shared:
      return memory(w).shared(time, passes) + machine_.shared_latency - 1;
    case Unit::shuffle:
      return memory(w).shared(time, 1) + machine_.shuffle_latency - 1;
    case Unit::global: {
      static const Effect kNone;
      const bool load = op.kind == OpKind::load;
      return memory(w).global(time, *w.trace, e ? *e : kNone, load || op.kind == OpKind::atomic,
                              load);
    }
    case Unit::copy: {
      if (!e) return time;
      const double over = memory(w).fill(memory(w).global(time, *w.trace, *e, true, false), passes);
      w.copies = std::max(w.copies, over);
      return over;
    }
    default:  // tma
      return e ? copy_bulk(w, *e, time) : time;
  }
}

// A copy with signals tells mbarriers, of several blocks if it is multicast; the others belong to
// a bulk group. One without sectors goes from block to block of a cluster.
double Engine::copy_bulk(WarpRun& w, const Effect& e, double time) {
  double sectors = 0;
  for (uint32_t k = 0; k < e.runs; ++k) sectors += w.trace->sectors[e.first_run + k].count;
  if (e.prefetch) return memory(w).prefetch(time, sectors);
  const bool load = e.signals > 0;
  double over = sectors > 0 || !load ? memory(w).bulk(time, e.bytes, sectors, load)
                                     : memory(w).send(time, e.bytes);
  for (uint32_t k = 0; k < e.signals; ++k) {
    const uint32_t rank = mbarrier_rank(w.trace->signals[e.first_signal + k].barrier);
    if (rank != w.block->rank)
      over = std::max(over, processors_[rank].memory.receive(time, e.bytes));
  }
  interval(w, time, over, static_cast<uint8_t>(Unit::tma));
  if (load) {
    contribute(w, over);
  } else {
    w.copies = std::max(w.copies, over);
  }
  return over;
}

// Returns when the instruction's result can be used.
double Engine::execute(WarpRun& w, double time) {
  const Op& op = map_.program.ops[w.step.op];
  const auto unit = static_cast<size_t>(op.unit);
  read_registers(part(w), op, time);
  if (op.unit == Unit::tensor || op.unit == Unit::wgmma) return multiply(w, op, time);
  if (op.unit == Unit::constant) return time + machine_.constant_latency;
  if (static_cast<int>(op.unit) >= kOwnUnits) {
    const double done = execute_memory(w, op, time);
    result_.busy[unit] += 1;
    return done;
  }
  const double cycles = op.unit == Unit::fma ? kHalfPipe : machine_.cycles[unit];
  part(w).free[pipe(part(w), op)] = time + cycles;
  result_.busy[unit] += machine_.cycles[unit];
  if (op.unit == Unit::math) {
    interval(w, time, time + machine_.cycles[unit], static_cast<uint8_t>(op.unit));
    return time + machine_.math_latency + machine_.cycles[unit] - 1;
  }
  if (op.unit == Unit::convert) return time + machine_.convert_latency;
  return time + 1;
}

// The instruction's parts of phases of mbarriers are done.
void Engine::contribute(WarpRun& w, double time) {
  const Effect* e = w.step.effect;
  if (!e || e->signals == 0) return;
  const auto at = static_cast<size_t>(e - w.trace->effects.data());
  if (w.contributed[at]) return;
  w.contributed[at] = true;
  for (uint32_t k = 0; k < e->signals; ++k) {
    const Signal& one = w.trace->signals[e->first_signal + k];
    // A multicast comes from L2 to all, everything else from this block.
    const bool remote = mbarrier_rank(one.barrier) != w.block->rank && e->runs == 0;
    signal(*w.block->cluster, one, time + (remote ? machine_.cluster_latency : 0));
  }
}

// The last part of a phase lets the waiting warps go, which ask again.
void Engine::signal(ClusterRun& cluster, const Signal& one, double time) {
  const auto found = cluster.phases.find({one.barrier, one.phase});
  if (found == cluster.phases.end() || found->second.left == 0) return;
  Phase& phase = found->second;
  phase.over = std::max(phase.over, time);
  if (--phase.left == 0) cluster.changed = true;
}

void Engine::arrive(WarpRun& w, double time, bool waits) {
  BlockRun& block = *w.block;
  const Effect* e = w.step.effect;
  const uint64_t id = e && e->barrier < 16 ? e->barrier : 0;
  const uint32_t warps = e && e->count ? e->count / 32 : 0;
  Barrier& b = block.barriers[id];
  b.expected = warps;
  ++b.arrived;
  if (waits) {
    b.waiting.push_back(&w);
    w.blocked = true;
    w.blocked_since = time;
  }
  block.release(time + machine_.barrier_latency, &result_);
}

void Engine::take_effect(WarpRun& w, const Op& op, double time, double done) {
  const bool skipped = w.step.effect && w.step.effect->lanes == 0;
  switch (op.kind) {
    case OpKind::group_commit:
    case OpKind::bulk_commit:
      w.groups.push_back(w.copies);
      break;
    case OpKind::mbarrier_arrive:
      contribute(w, time + 4);
      break;
    case OpKind::mbarrier_copies:
      contribute(w, std::max(time, w.copies));
      break;
    case OpKind::barrier:
    case OpKind::barrier_arrive:
      if (!skipped) arrive(w, time, op.kind == OpKind::barrier);
      break;
    case OpKind::cluster_arrive:
      ++w.cluster_arrivals;
      w.block->cluster->arrive(time, machine_.cluster_latency);
      break;
    default:
      break;
  }
  if (op.commits || op.kind == OpKind::wgmma_commit) {  // as machine code and as PTX say it
    w.products.push_back(w.product);
    w.product = 0;
  }
  const bool slow = op.unit == Unit::global || op.unit == Unit::copy || op.unit == Unit::tma;
  const Stall why = slow ? Stall::long_scoreboard : Stall::short_scoreboard;
  if (op.writes < 6) {
    w.board[op.writes] = std::max(w.board[op.writes], done);
    w.board_why[op.writes] = why;
  }
  if (op.reads < 6) {
    const double read = std::max(time + kOperandsRead, time + memory(w).backlog(time));
    w.board[op.reads] = std::max(w.board[op.reads], std::min(done, read));
    w.board_why[op.reads] = Stall::short_scoreboard;
  }
}

}  // namespace sim::clock
