// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles a cluster: whose turn it is among the warps of its blocks, when copies land
// while nobody can run, and barrier.cluster. The file also has the host threads that run clusters.
#include <algorithm>

#include "sim/check/race.h"
#include "sim/exec/grid_state.h"

namespace sim {
namespace {

constexpr uint64_t kQuantum = 4096;  // about how long a warp runs before the next one
// A cluster may run this many instructions in all after a later cluster had a fault: it may wait
// for that cluster in vain.
constexpr uint64_t kAfterFault = 8'000'000;

}  // namespace

ClusterRun::ClusterRun(Worker* worker, const Launch& launch) : worker_(worker) {
  const uint32_t* dims = launch.view.cluster;
  cluster_.size = dims[0] * dims[1] * dims[2];
  for (uint32_t rank = 0; rank < cluster_.size; ++rank) {
    runs_.push_back(std::make_unique<BlockRun>(worker, launch, &cluster_, rank));
    blocks_.push_back(&runs_.back()->block());
    for (Warp& w : runs_.back()->warps()) warps_.push_back(&w);
  }
  cluster_.blocks = blocks_.data();
  if (launch.function->uses_async_copies) {
    async_ = std::make_unique<Async>(&cluster_, launch);
    cluster_.async = async_.get();
  }
}

ClusterRun::~ClusterRun() = default;

void ClusterRun::start(uint64_t linear) {
  const Launch& launch = *worker_->launch;
  const uint32_t* dims = launch.view.cluster;
  uint32_t count[3];
  for (int k = 0; k < 3; ++k) count[k] = launch.view.grid[k] / dims[k];
  const uint32_t first[3] = {static_cast<uint32_t>(linear % count[0]) * dims[0],
                             static_cast<uint32_t>(linear / count[0] % count[1]) * dims[1],
                             static_cast<uint32_t>(linear / count[0] / count[1]) * dims[2]};
  for (uint32_t rank = 0; rank < cluster_.size; ++rank) {
    const uint32_t id[3] = {first[0] + rank % dims[0], first[1] + rank / dims[0] % dims[1],
                            first[2] + rank / dims[0] / dims[1]};
    runs_[rank]->start(id);
  }
  cluster_.linear = linear;
  cluster_.random = mix(launch.settings->seed ^ mix(~linear));
  cluster_.events = cluster_.phase = 0;
  cluster_.race = race_mbarrier(*blocks_[0]);
  if (async_) async_->start();
  recorder_.reset();
  if (std::binary_search(launch.traced.begin(), launch.traced.end(), linear)) {
    const uint64_t most = launch.settings->traces->most_instructions / launch.traced.size();
    recorder_ = std::make_unique<Recorder>(*launch.function, most);
    for (const Block* block : blocks_) recorder_->start(*block);
  }
  next_ = next_random(cluster_.random) % warps_.size();
  done_ = 0;
  executed_ = 0;
}

// Adds to the launch's instructions. False past its limit.
bool ClusterRun::charge(uint64_t instructions) {
  Launch& launch = *worker_->launch;
  const uint64_t limit = launch.settings->instruction_limit;
  if (!limit || launch.executed.fetch_add(instructions) + instructions <= limit) return true;
  launch.time_out();
  return false;
}

// Hands what was recorded to the launch once all warps have ended.
void ClusterRun::record() {
  Launch& launch = *worker_->launch;
  const std::lock_guard lock(launch.mutex);
  launch.traces[cluster_.linear] = recorder_->take(cluster_);
  recorder_.reset();
}

bool ClusterRun::advance(uint64_t budget) {
  worker_->recorder = recorder_ && !recorder_->full() ? recorder_.get() : nullptr;
  if (worker_->recorder) recorder_->resume(*worker_);
  const bool more = run(budget);
  worker_->recorder = nullptr;
  if (recorder_ && done_ == warps_.size()) record();
  return more;
}

bool ClusterRun::run(uint64_t budget) {
  Launch& launch = *worker_->launch;
  const uint64_t stop_at = executed_ + budget;
  cluster_.awaits_primary = false;
  size_t idle = 0;  // turns in a row in which nothing happened
  while (done_ < warps_.size()) {
    const uint64_t fault = launch.fault_cluster.load(std::memory_order_relaxed);
    if (fault <= cluster_.linear || (fault != kNoCluster && executed_ > kAfterFault)) return false;
    if (executed_ >= stop_at) return true;
    Warp& w = *warps_[next_];
    next_ = (next_ + 1) % warps_.size();
    uint64_t ran = 0;
    if (w.state == WarpState::runnable || w.state == WarpState::waiting) {
      const uint64_t before = w.block->executed;
      const uint64_t turn = kQuantum / 2 + next_random(w.block->random) % kQuantum;
      const uint64_t quantum = std::min(turn, budget);
      const RunResult result = isa().run(w, quantum);
      if (worker_->recorder && recorder_->full()) worker_->recorder = nullptr;
      ran = w.block->executed - before;
      if (!charge(ran) || result == RunResult::stopped) return false;
      if (result == RunResult::done) {
        if (w.wgmma) wgmma_end(w);
        ++done_;
        ++w.block->warps_done;
        recheck_barriers(*w.block);
        recheck_cluster_barrier(cluster_);
        if (w.block->warps_done == w.block->warps) {
          end_dependence(*worker_, *w.block);
          if (async_ && !async_->block_ends(*w.block, w)) return false;
        }
        ran = 1;
      }
    }
    executed_ += ran;
    if (async_) async_->tick(executed_);
    idle = ran ? 0 : idle + 1;
    if (ran) worker_->lanes_part = false;
    if (idle <= warps_.size()) continue;
    if (!async_ || !async_->land_one()) {
      if (cluster_.awaits_primary) return true;
      if (!recorder_ || worker_->lanes_part) return deadlock();
      worker_->lanes_part = true;
    }
    idle = 0;
  }
  if (async_) async_->finish();
  return false;
}

// Every warp waits: each is reported with its place.
bool ClusterRun::deadlock() {
  for (Warp* w : warps_) {
    if (w->state == WarpState::done || w->strand_count == 0) continue;
    report_deadlock(*w);
  }
  worker_->launch->fail(cluster_.linear, 719);
  return false;
}

HostWorker::HostWorker(Launch* l) : random_(mix(l->settings->seed)) {
  launch = l;
  counts.resize(l->function->code.size());
  region_by_ordinal.resize(l->function->memory_ordinals + 1);
  pc_counts = counts.data();
  regions = region_by_ordinal.data();
  if (l->settings->profile) line_tallies.resize(counts.size());
  lines = line_tallies.empty() ? nullptr : line_tallies.data();
  memory_version = __atomic_load_n(l->memory->version(), __ATOMIC_SEQ_CST);
}

// Runs the cluster for a while, and lets other launches have turns meanwhile. Returns false when
// the cluster is done or the grid stops.
bool HostWorker::advance(ClusterRun& cluster, uint64_t slice) {
  if (!launch->takes_turns) return cluster.advance(slice);
  constexpr uint64_t kShortest = 500, kLongest = 8000;
  bool more = true;
  while (more && slice > 0) {
    const uint64_t piece = std::min(slice, kShortest + next_random(random_) % kLongest);
    slice -= piece;
    more = cluster.advance(piece);
    const bool waits = cluster.awaits_primary();
    if (const int error = launch->settings->give_way(waits)) launch->fail(0, error);
    if (waits) return more;
  }
  return more;
}

// Clusters in turn from the common counter. One that runs long may be waiting for another: it gives
// way, soon if its function looks at what others do, up to a number that a device would also hold.
// In a cooperative grid all run, in short turns, as most of them wait for the others.
void HostWorker::run() {
  const bool together = launch->grid->cooperative;
  const bool ordered = launch->function->ordered_across_blocks || together;
  const uint64_t slice = together ? 500 : ordered ? 10'000 : 4'000'000;
  const size_t resident = together  ? launch->clusters
                          : ordered ? 2 * static_cast<size_t>(launch->view.multiprocessors)
                                    : 64;
  std::vector<std::unique_ptr<ClusterRun>> busy, idle;
  size_t turn = 0;
  for (;;) {
    if (busy.empty() || ((ordered || turn == 0) && busy.size() < resident)) {
      const uint64_t turn_of = launch->next_cluster.fetch_add(1);
      const bool any = turn_of < launch->clusters;
      const uint64_t next = any && !launch->sampled.empty() ? launch->sampled[turn_of] : turn_of;
      if (any && !launch->stops(next)) {
        if (idle.empty()) idle.push_back(std::make_unique<ClusterRun>(this, *launch));
        busy.push_back(std::move(idle.back()));
        idle.pop_back();
        busy.back()->start(next);
        turn = busy.size() - 1;
      } else if (busy.empty()) {
        return;
      }
    }
    if (advance(*busy[turn], slice)) {
      turn = (turn + 1) % busy.size();
      continue;
    }
    idle.push_back(std::move(busy[turn]));
    busy.erase(busy.begin() + static_cast<std::ptrdiff_t>(turn));
    turn = busy.empty() ? 0 : turn % busy.size();
  }
}

}  // namespace sim
