// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/clock/engine.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sim/clock/resident.h"

namespace sim::clock {

const char* const kStallNames[kStalls] = {"selected",
                                          "wait",
                                          "long scoreboard",
                                          "short scoreboard",
                                          "barrier",
                                          "mbarrier",
                                          "async copy",
                                          "wgmma",
                                          "math pipe throttle",
                                          "tensor pipe throttle",
                                          "memory throttle",
                                          "not selected"};

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr int kParts = 4;
// Requests of about so many cycles wait in the queue before L1 and shared memory.
constexpr double kBacklog = 128;
constexpr double kOperandsRead = 12;  // until a store has read its registers
constexpr double kSkipped = 4;        // an instruction whose guard held all lanes back

struct Part {
  std::vector<WarpRun*> warps;  // in the order of their start
  WarpRun* last = nullptr;
  double free[kOwnUnits] = {};
};

class Engine {
 public:
  Engine(const Machine& machine, const Map& map, const std::vector<BlockTrace>& blocks,
         const Load& load, size_t most_intervals)
      : machine_(machine),
        map_(map),
        traces_(blocks),
        load_(load),
        memory_(machine, load),
        most_intervals_(most_intervals) {
    result_.ops.resize(map.program.ops.size());
    result_.warps.resize(blocks.empty() ? 0 : blocks[0].warps.size());
  }
  Result run();

 private:
  struct Need {  // why the next instruction of a warp has to wait, and until when
    double until;
    Stall why;
  };
  void start_block(int slot, double time);
  void end_warp(WarpRun& w, double time);
  double needs(WarpRun& w, Need* needs, int* count);
  double group_time(const std::vector<double>& groups, unsigned keep) const;
  double phase_time(WarpRun& w) const;
  void issue(WarpRun& w, double time);
  void charge(WarpRun& w, const Need* needs, int count, double time);
  double execute(WarpRun& w, double time);
  double execute_memory(WarpRun& w, const Op& op, double time);
  double multiply(WarpRun& w, const Op& op, double time);
  void act(WarpRun& w, const Op& op, double time, double done);
  void arrive(WarpRun& w, double time, bool waits);
  void contribute(WarpRun& w, double time);
  void interval(const WarpRun& w, double begin, double end, uint8_t kind);
  bool wake_somebody(double time);
  double look(double time);

  const Machine& machine_;
  const Map& map_;
  const std::vector<BlockTrace>& traces_;
  const Load load_;
  MemorySystem memory_;
  Part parts_[kParts];
  std::vector<std::unique_ptr<BlockRun>> slots_;
  std::vector<std::unique_ptr<BlockRun>> ended_;
  size_t next_block_ = 0, live_ = 0;
  size_t most_intervals_;
  Result result_;
};

void Engine::start_block(int slot, double time) {
  if (next_block_ >= traces_.size()) return;
  const auto index = static_cast<uint32_t>(next_block_++);
  auto block = std::make_unique<BlockRun>(map_, traces_[index], index, slot);
  block->begin = time;
  for (auto& w : block->warps) {
    w->ready = w->last_issue = time;
    w->part = static_cast<int>((w->index + static_cast<uint32_t>(slot)) % kParts);
    w->step = w->walk.next();
    parts_[w->part].warps.push_back(w.get());
  }
  ++live_;
  slots_[static_cast<size_t>(slot)] = std::move(block);
}

void Engine::end_warp(WarpRun& w, double time) {
  w.ended = true;
  std::erase(parts_[w.part].warps, &w);
  if (parts_[w.part].last == &w) parts_[w.part].last = nullptr;
  BlockRun& block = *w.block;
  block.release(time + machine_.barrier_latency, &result_);
  if (++block.ended < block.warps.size()) return;
  result_.blocks.push_back({block.index, block.begin, time});
  const int slot = block.slot;
  ended_.push_back(std::move(slots_[static_cast<size_t>(slot)]));
  --live_;
  start_block(slot, time + machine_.block_start);
}

// Returns when at most `keep` of the groups are open.
double Engine::group_time(const std::vector<double>& groups, unsigned keep) const {
  double time = 0;
  for (size_t k = 0; k + keep < groups.size(); ++k) time = std::max(time, groups[k]);
  return time;
}

double Engine::phase_time(WarpRun& w) const {
  const Effect* e = w.step.effect;
  if (!e || e->barrier == kNoBarrier || e->phase == ~0ull) return 0;
  const auto found = w.block->phases.find({e->barrier, e->phase});
  if (found == w.block->phases.end()) return 0;
  return found->second.left ? kNever : found->second.over + machine_.mbarrier_latency;
}

// Lists what the next instruction waits for, in the order in which time is charged; returns when it
// may issue.
double Engine::needs(WarpRun& w, Need* list, int* count) {
  const Op& op = map_.program.ops[w.step.op];
  int n = 0;
  list[n++] = {w.ready, Stall::wait};
  for (int k = 0; k < 6; ++k) {
    if (op.waits >> k & 1) list[n++] = {w.board[k], w.board_why[k]};
  }
  double registers = 0;
  for (int k = 0; k < 6 && op.source_counts[k]; ++k) {
    for (unsigned r = 0; r < op.source_counts[k]; ++r) {
      registers = std::max(registers, w.written[(op.sources[k] + r) & 255]);
    }
  }
  list[n++] = {registers, Stall::wait};
  if (op.act == Act::group_wait) list[n++] = {group_time(w.groups, op.keep), Stall::async_copy};
  if (op.act == Act::wgmma_wait) {
    list[n++] = {group_time(w.products, op.keep) + machine_.wgmma_drain, Stall::wgmma};
  }
  if (op.act == Act::mbarrier_wait) list[n++] = {phase_time(w), Stall::mbarrier};
  const bool own = static_cast<int>(op.unit) < kOwnUnits;
  if (own) {
    double free = parts_[w.part].free[static_cast<int>(op.unit)];
    if (op.unit == Unit::wgmma) free -= op.tensor / machine_.tensor_rate;  // one may wait
    if (op.unit == Unit::tensor) free -= 0.99;  // products need not begin on whole cycles
    const bool tensor = op.unit == Unit::tensor || op.unit == Unit::wgmma;
    list[n++] = {free, tensor ? Stall::tensor_throttle : Stall::math_throttle};
  } else if (op.unit != Unit::constant) {
    const double before = list[0].until;
    const double free = before + memory_.backlog(before) - kBacklog;
    list[n++] = {free, Stall::memory_throttle};
  }
  *count = n;
  double time = 0;
  for (int k = 0; k < n; ++k) time = std::max(time, list[k].until);
  return std::ceil(time);
}

void Engine::charge(WarpRun& w, const Need* list, int count, double time) {
  auto& stalls = result_.ops[w.step.op].stalls;
  auto& of_warp = result_.warps[w.index];
  auto add = [&](Stall why, double cycles) {
    stalls[static_cast<size_t>(why)] += cycles;
    of_warp[static_cast<size_t>(why)] += cycles;
  };
  double at = w.last_issue + 1;
  for (int k = 0; k < count; ++k) {
    const double until = std::min(list[k].until, time);
    if (until <= at) continue;
    add(list[k].why, until - at);
    if (list[k].why != Stall::wait)
      interval(w, at, until, static_cast<uint8_t>(64 + static_cast<int>(list[k].why)));
    at = until;
  }
  if (time > at) add(Stall::not_selected, time - at);
  add(Stall::selected, 1);
}

void Engine::interval(const WarpRun& w, double begin, double end, uint8_t kind) {
  if (result_.intervals.size() >= most_intervals_ || end - begin < 2) return;
  result_.intervals.push_back(
      {w.block->index, w.index, static_cast<float>(begin), static_cast<float>(end), kind});
}

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

void Engine::issue(WarpRun& w, double time) {
  Need list[16];
  int count = 0;
  needs(w, list, &count);
  charge(w, list, count, time);
  const Op& op = map_.program.ops[w.step.op];
  ++result_.ops[w.step.op].issued;
  ++result_.issued;
  w.last_issue = time;
  w.ready = time + op.stall;
  act(w, op, time, execute(w, time));
  w.step = w.walk.next();
  if (w.step.op == kNowhere && !w.blocked) end_warp(w, time + 1);
}

// Everybody waits for what nobody will do, because the walk through machine code missed it: the
// first warp goes on.
bool Engine::wake_somebody(double time) {
  result_.stuck = true;
  for (auto& block : slots_) {
    if (!block) continue;
    for (auto& w : block->warps) {
      if (w->ended) continue;
      if (w->blocked) {
        w->blocked = false;
        w->ready = time;
        for (Barrier& b : block->barriers) std::erase(b.waiting, w.get());
        return true;
      }
      if (w->step.effect && w->step.op != kNowhere) {
        w->step.effect = nullptr;
        return true;
      }
    }
  }
  return false;
}

// Lets each part issue what it can at `time`; returns when something can happen next.
double Engine::look(double time) {
  double next = kNever;
  for (Part& part : parts_) {
    WarpRun* chosen = nullptr;
    for (size_t k = part.warps.size(); k-- > 0;) {
      WarpRun& w = *part.warps[k];
      if (w.blocked) continue;
      if (w.step.op == kNowhere) {
        end_warp(w, time);
        return time;
      }
      if (w.asked > time && !w.block->changed) {
        next = std::min(next, w.asked);
        continue;
      }
      Need list[16];
      int count = 0;
      w.asked = needs(w, list, &count);
      if (w.asked > time) {
        next = std::min(next, w.asked);
      } else if (!chosen || &w == part.last) {
        chosen = &w;
      } else {
        next = time + 1;
      }
    }
    if (!chosen) continue;
    part.last = chosen;
    chosen->asked = 0;
    issue(*chosen, time);
    next = time + 1;
  }
  return next;
}

Result Engine::run() {
  slots_.resize(static_cast<size_t>(std::max(1, load_.resident)));
  for (size_t slot = 0; slot < slots_.size(); ++slot) start_block(static_cast<int>(slot), 0);
  double time = 0;
  while (live_ > 0) {
    for (auto& block : slots_) {
      if (block) block->changed = false;
    }
    const double next = look(time);
    bool changed = false;
    for (auto& block : slots_) changed |= block && block->changed;
    if (next == kNever && !changed) {
      if (!wake_somebody(time)) break;
      time += 1;
      for (Part& part : parts_) {
        for (WarpRun* w : part.warps) w->asked = 0;
      }
      continue;
    }
    if (changed) {
      for (Part& part : parts_) {
        for (WarpRun* w : part.warps) w->asked = 0;
      }
      time = next == time ? time : time + 1;
      continue;
    }
    time = std::max(time, next);
  }
  for (const BlockTime& block : result_.blocks)
    result_.cycles = std::max(result_.cycles, block.end);
  memory_.fill(&result_);
  return std::move(result_);
}

}  // namespace

Result replay(const Machine& machine, const Map& map, const std::vector<BlockTrace>& blocks,
              const Load& load, size_t most_intervals) {
  return Engine(machine, map, blocks, load, most_intervals).run();
}

}  // namespace sim::clock
