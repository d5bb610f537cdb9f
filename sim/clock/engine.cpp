// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/clock/engine.h"

#include <algorithm>
#include <cmath>

#include "sim/clock/engine_state.h"

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

// Requests of about so many cycles wait in the queue before L1 and shared memory.
constexpr double kBacklog = 128;

}  // namespace

void Engine::start_block(BlockRun& block, int slot, double time) {
  block.begin = time;
  for (auto& w : block.warps) {
    w->ready = w->last_issue = time;
    w->part = static_cast<int>((w->index + static_cast<uint32_t>(slot)) % kParts);
    w->step = w->walk.next();
    part(*w).warps.push_back(w.get());
  }
}

void Engine::start_cluster(int slot, double time) {
  const auto size = static_cast<size_t>(setup_.cluster);
  if (next_block_ + size > traces_.size()) return;
  auto cluster = std::make_unique<ClusterRun>(map_, &traces_[next_block_], size,
                                              static_cast<uint32_t>(next_block_), slot);
  next_block_ += size;
  for (auto& block : cluster->blocks) start_block(*block, slot, time);
  live_ += size;
  slots_[static_cast<size_t>(slot)] = std::move(cluster);
}

void Engine::end_warp(WarpRun& w, double time) {
  w.ended = true;
  Part& own = part(w);
  std::erase(own.warps, &w);
  if (own.last == &w) own.last = nullptr;
  BlockRun& block = *w.block;
  ClusterRun& cluster = *block.cluster;
  block.release(time + machine_.barrier_latency, &result_);
  cluster.leave(time, machine_.cluster_latency);
  if (++block.ended < block.warps.size()) return;
  result_.blocks.push_back({block.index, block.begin, time});
  if (block.back_edges.size() > result_.back_edges.size())
    result_.back_edges = std::move(block.back_edges);
  --live_;
  if (cluster.live > 0) return;
  // The next cluster starts when there is room for all of its blocks.
  const int slot = cluster.slot;
  ended_.push_back(std::move(slots_[static_cast<size_t>(slot)]));
  start_cluster(slot, time + machine_.block_start);
}

// Returns when at most `keep` of the groups are open.
double Engine::group_time(const std::vector<double>& groups, unsigned keep) const {
  double time = 0;
  for (size_t k = 0; k + keep < groups.size(); ++k) time = std::max(time, groups[k]);
  return time;
}

double Engine::phase_time(const WarpRun& w) const {
  const Effect* e = w.step.effect;
  if (!e || e->barrier == kNoBarrier || e->phase == ~0ull) return 0;
  const auto& phases = w.block->cluster->phases;
  const auto found = phases.find({e->barrier, e->phase});
  if (found == phases.end()) return 0;
  return found->second.left ? kNever : found->second.over + machine_.mbarrier_latency;
}

double Engine::cluster_time(const WarpRun& w) const {
  const auto& over = w.block->cluster->barriers_over;
  if (w.cluster_arrivals == 0) return 0;
  return over.size() < w.cluster_arrivals ? kNever : over[w.cluster_arrivals - 1];
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
  if (op.kind == OpKind::group_wait) list[n++] = {group_time(w.groups, op.keep), Stall::async_copy};
  if (op.kind == OpKind::wgmma_wait) {
    list[n++] = {group_time(w.products, op.keep) + machine_.wgmma_drain, Stall::wgmma};
  }
  if (op.kind == OpKind::mbarrier_wait) list[n++] = {phase_time(w), Stall::mbarrier};
  if (op.kind == OpKind::cluster_wait) list[n++] = {cluster_time(w), Stall::barrier};
  const bool own = static_cast<int>(op.unit) < kOwnUnits;
  if (own) {
    const double free = unit_free(part(w), op);
    const bool tensor = op.unit == Unit::tensor || op.unit == Unit::wgmma;
    list[n++] = {free, tensor ? Stall::tensor_throttle : Stall::math_throttle};
  } else if (op.unit != Unit::constant) {
    const double before = list[0].until;
    const double free = before + memory(w).backlog(before) - kBacklog;
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

void Engine::issue(WarpRun& w, double time) {
  Need list[16];
  int count = 0;
  needs(w, list, &count);
  charge(w, list, count, time);
  const Op& op = map_.program.ops[w.step.op];
  ++result_.ops[w.step.op].issued;
  ++result_.issued;
  result_.ran[w.index][w.step.op] = true;
  if (op.kind == OpKind::branch && op.target <= w.step.op &&
      w.block->back_edges.size() < BlockRun::kMostBackEdges) {
    w.block->back_edges.push_back({w.step.op, w.index, static_cast<float>(time)});
  }
  w.last_issue = time;
  w.ready = time + op.stall;
  take_effect(w, op, time, execute(w, time));
  w.step = w.walk.next();
  if (w.step.op == kNowhere && !w.blocked) end_warp(w, time + 1);
}

bool Engine::wake(WarpRun& w, double time) {
  if (w.ended) return false;
  if (w.blocked) {
    w.blocked = false;
    w.ready = time;
    for (Barrier& b : w.block->barriers) std::erase(b.waiting, &w);
    return true;
  }
  if (w.step.op == kNowhere) return false;
  const Op& op = map_.program.ops[w.step.op];
  if (op.kind == OpKind::cluster_wait && w.cluster_arrivals > 0) {
    w.cluster_arrivals = 0;
    return true;
  }
  if (!w.step.effect) return false;
  w.step.effect = nullptr;
  return true;
}

// Everybody waits for what nobody will do, because the walk through machine code missed it: the
// first warp goes on.
bool Engine::wake_somebody(double time) {
  result_.stuck = true;
  for (auto& cluster : slots_) {
    if (!cluster) continue;
    for (auto& block : cluster->blocks) {
      for (auto& w : block->warps) {
        if (wake(*w, time)) return true;
      }
    }
  }
  return false;
}

// Lets a part issue what it can at `time`; returns when something can happen next.
double Engine::look(Part& part, double time) {
  if (time < part.next_issue) return part.next_issue;
  double next = kNever;
  WarpRun* chosen = nullptr;
  for (size_t k = part.warps.size(); k-- > 0;) {
    WarpRun& w = *part.warps[k];
    if (w.blocked) continue;
    if (w.step.op == kNowhere) {
      end_warp(w, time);
      return time;
    }
    if (w.asked > time && !w.block->cluster->changed) {
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
  if (!chosen) return next;
  part.last = chosen;
  part.next_issue = time + 1;
  chosen->asked = 0;
  issue(*chosen, time);
  return part.next_issue;
}

void Engine::ask_again() {
  for (Multiprocessor& processor : processors_) {
    for (Part& part : processor.parts) {
      for (WarpRun* w : part.warps) w->asked = 0;
    }
  }
}

void Engine::finish() {
  for (const BlockTime& block : result_.blocks)
    result_.cycles = std::max(result_.cycles, block.end);
  const auto size = static_cast<double>(processors_.size());
  for (double& busy : result_.busy) busy /= size;
  result_.issued /= size;
  for (const Multiprocessor& processor : processors_) processor.memory.add_to(&result_, 1 / size);
}

ReplayResult Engine::run() {
  slots_.resize(static_cast<size_t>(std::max(1, setup_.resident)));
  for (size_t slot = 0; slot < slots_.size(); ++slot) start_cluster(static_cast<int>(slot), 0);
  double time = 0;
  while (live_ > 0) {
    for (auto& cluster : slots_) {
      if (cluster) cluster->changed = false;
    }
    double next = kNever;
    for (Multiprocessor& processor : processors_) {
      for (Part& part : processor.parts) next = std::min(next, look(part, time));
    }
    bool changed = false;
    for (auto& cluster : slots_) changed |= cluster && cluster->changed;
    if (next == kNever && !changed) {
      if (!wake_somebody(time)) break;
      time += 1;
      ask_again();
    } else if (changed) {
      ask_again();
      time = next == time ? time : time + 1;
    } else {
      time = std::max(time, next);
    }
  }
  finish();
  return std::move(result_);
}

ReplayResult replay(const Machine& machine, const SassMap& map,
                    const std::vector<BlockTrace>& blocks, const ReplaySetup& setup,
                    size_t most_intervals) {
  return Engine(machine, map, blocks, setup, most_intervals).run();
}

}  // namespace sim::clock
