// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file says which unit an instruction keeps busy, when its result is there, and whom it frees.
#include <algorithm>

#include "sim/clock/engine_state.h"

namespace sim::clock {
namespace {

constexpr double kOperandsRead = 12;  // until a store has read its registers
constexpr double kSkipped = 4;        // an instruction whose guard held all lanes back

}  // namespace

double Engine::multiply(WarpRun& w, const Op& op, double time) {
  double& free = parts_[w.part].free[static_cast<int>(op.unit)];
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
  free = std::max(begin + cycles, memory_.shared(begin, passes));
  result_.busy[static_cast<size_t>(op.unit)] += cycles;
  w.product = std::max(w.product, free);
  interval(w, begin, free, static_cast<uint8_t>(op.unit));
  return free;
}

double Engine::execute_memory(WarpRun& w, const Op& op, double time) {
  const Effect* e = w.step.effect;
  if (e && e->lanes == 0) return time + kSkipped;
  const double passes = e ? std::max(1u, e->wavefronts) : 1;
  switch (op.unit) {
    case Unit::shared:
      return memory_.shared(time, passes) + machine_.shared_latency - 1;
    case Unit::shuffle:
      return memory_.shared(time, 1) + machine_.shuffle_latency - 1;
    case Unit::global: {
      static const Effect kNone;
      const bool load = op.act == Act::load;
      return memory_.global(time, *w.trace, e ? *e : kNone, load || op.act == Act::atomic, load);
    }
    case Unit::copy: {
      const double over = e ? memory_.global(time, *w.trace, *e, true, false) : time;
      memory_.shared_later(over, passes);
      w.copies = std::max(w.copies, over);
      return over;
    }
    default: {  // tma
      if (!e) return time;
      double sectors = 0;
      for (uint32_t k = 0; k < e->runs; ++k) sectors += w.trace->sectors[e->first_run + k].count;
      const bool load = e->barrier != kNoBarrier;
      const double over = memory_.bulk(time, e->bytes, sectors, load);
      interval(w, time, over, static_cast<uint8_t>(op.unit));
      if (load) {
        contribute(w, over);
      } else {
        w.copies = std::max(w.copies, over);
      }
      return over;
    }
  }
}

// Returns when the instruction's result can be used.
double Engine::execute(WarpRun& w, double time) {
  const Op& op = map_.program.ops[w.step.op];
  const auto unit = static_cast<size_t>(op.unit);
  if (op.unit == Unit::tensor || op.unit == Unit::wgmma) return multiply(w, op, time);
  if (op.unit == Unit::constant) return time + machine_.constant_latency;
  if (static_cast<int>(op.unit) >= kOwnUnits) {
    const double done = execute_memory(w, op, time);
    result_.busy[unit] += 1;
    return done;
  }
  parts_[w.part].free[unit] = time + machine_.cycles[unit];
  result_.busy[unit] += machine_.cycles[unit];
  if (op.unit == Unit::math) {
    interval(w, time, time + machine_.cycles[unit], static_cast<uint8_t>(op.unit));
    return time + machine_.math_latency + machine_.cycles[unit] - 1;
  }
  if (op.unit == Unit::convert) return time + machine_.convert_latency;
  return time + 1;
}

// One part of a phase of an mbarrier is done: an arrival, or the bytes of a copy. The last lets the
// waiting warps go, which ask again.
void Engine::contribute(WarpRun& w, double time) {
  const Effect* e = w.step.effect;
  if (!e || e->barrier == kNoBarrier || e->lanes == 0) return;
  const auto at = static_cast<size_t>(e - w.trace->effects.data());
  if (w.contributed[at]) return;
  w.contributed[at] = true;
  const auto found = w.block->phases.find({e->barrier, e->phase});
  if (found == w.block->phases.end() || found->second.left == 0) return;
  Phase& phase = found->second;
  phase.over = std::max(phase.over, time);
  if (--phase.left == 0) w.block->changed = true;
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

void Engine::act(WarpRun& w, const Op& op, double time, double done) {
  const bool skipped = w.step.effect && w.step.effect->lanes == 0;
  switch (op.act) {
    case Act::group_commit:
    case Act::bulk_commit:
      w.groups.push_back(w.copies);
      break;
    case Act::mbarrier_arrive:
      contribute(w, time + 4);
      break;
    case Act::mbarrier_copies:
      contribute(w, std::max(time, w.copies));
      break;
    case Act::barrier:
    case Act::barrier_arrive:
      if (!skipped) arrive(w, time, op.act == Act::barrier);
      break;
    default:
      break;
  }
  if (op.commits) {
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
    const double read = std::max(time + kOperandsRead, time + memory_.backlog(time));
    w.board[op.reads] = std::max(w.board[op.reads], std::min(done, read));
    w.board_why[op.reads] = Stall::short_scoreboard;
  }
}

}  // namespace sim::clock
