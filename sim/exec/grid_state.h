// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds a launch while it runs: what its host threads share, and what each owns.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "sim/exec/async/async.h"
#include "sim/exec/findings.h"
#include "sim/exec/heap.h"
#include "sim/exec/launch.h"
#include "sim/exec/trace.h"
#include "sim/exec/warp.h"
#include "sim/exec/wgmma_state.h"
#include "sim/ptx/code.h"

namespace sim {

struct RaceGrid;

constexpr uint64_t kNoCluster = ~0ull;

// The host threads of one run_grid share a Launch.
struct Launch {
  const Grid* grid = nullptr;
  const Profile* profile = nullptr;
  Memory* memory = nullptr;
  const Settings* settings = nullptr;
  const Function* function = nullptr;
  Heap* heap = nullptr;
  LaunchView view;
  std::vector<uint32_t> tid[3];
  uint64_t clusters = 0;            // that run
  std::vector<uint64_t> sampled;    // their numbers, if not all of the grid's do
  double scale = 1;                 // the grid's clusters to each that runs
  std::shared_ptr<RaceGrid> races;  // null: not checked
  std::vector<uint64_t> traced;     // clusters that are recorded, ascending
  bool takes_turns = false;         // one host thread runs all of it, and gives way now and then

  std::atomic<uint64_t> next_cluster{0};
  std::atomic<uint64_t> executed{0};
  std::atomic<int> error{0};
  // This is the first cluster that a fault ended. Later ones stop and do not count; earlier ones
  // run on, so that the outcome is the same whatever the number of host threads.
  std::atomic<uint64_t> fault_cluster{kNoCluster};
  std::mutex mutex;  // of what follows
  bool timed_out = false;
  std::vector<Finding> findings;
  std::map<uint64_t, std::vector<std::string>> printed;  // by block, call by call
  std::map<uint64_t, std::vector<BlockTrace>> traces;    // by cluster
  Findings kept;

  bool stops(uint64_t cluster) const {
    return fault_cluster.load(std::memory_order_relaxed) <= cluster;
  }
  // Ends, after a fault, this cluster and all later ones with `error`.
  void fail(uint64_t cluster, int error);
  // Ends everything: the launch is past the instruction limit.
  void time_out();
};

// A KnownAllocation is one allocation as a worker knows it.
struct KnownAllocation {
  std::shared_ptr<const Allocation> allocation;
  Region region;
  std::vector<uint64_t> loaded, stored, prefetched;  // a bit for each sector
};

// exec/sample.cpp: which clusters of a larger grid run, ascending.
std::vector<uint64_t> sample_clusters(uint64_t all, uint64_t wanted);

// exec/dependents.cpp: a block is over.
void end_dependence(Worker& worker, const Block& block);
// exec/calls.cpp
std::shared_ptr<CallStack> make_call_stack();
void reset_calls(Warp& warp);
// exec/print.cpp: what a block printed goes out in the order of blocks.
void flush_prints(Launch& launch);
std::string assertion_text(const Warp& warp, const Inst& inst, unsigned lane);

// A BlockRun is a block with the memory behind it; it is used again for the next block.
class BlockRun {
 public:
  BlockRun(Worker* worker, const Launch& launch, Cluster* cluster, uint32_t rank);
  void start(const uint32_t (&id)[3]);
  Block& block() { return block_; }
  std::vector<Warp>& warps() { return warps_; }

 private:
  Worker* worker_;
  Block block_;
  std::vector<Warp> warps_;
  std::unique_ptr<uint8_t[]> registers_;
  uint8_t* register_base_ = nullptr;
  size_t register_bytes_ = 0;
  std::vector<uint32_t> predicates_;
  std::vector<uint8_t> shared_, local_;
  std::vector<uint64_t> shared_defined_, local_defined_;
  std::shared_ptr<RaceBlock> races_;
  std::vector<uint16_t> marks_;
  std::vector<uint32_t> undefined_;
  std::vector<std::shared_ptr<CallStack>> calls_;
  std::vector<WgmmaState> wgmma_;  // by warp
  std::vector<Warpgroup> warpgroups_;
};

// A ClusterRun runs the blocks of a cluster in turn on one host thread; it is used again for the
// next cluster.
class ClusterRun {
 public:
  ClusterRun(Worker* worker, const Launch& launch);
  ~ClusterRun();
  void start(uint64_t linear);
  // Runs up to `budget` warp instructions. Returns false when the cluster is done or the grid
  // stops.
  bool advance(uint64_t budget);
  // Says whether it waits for the grids in front.
  bool awaits_primary() const { return cluster_.awaits_primary; }

 private:
  bool charge(uint64_t instructions);
  bool deadlock();
  bool run(uint64_t budget);
  void record();

  Worker* worker_;
  Cluster cluster_;
  std::unique_ptr<Async> async_;
  std::vector<std::unique_ptr<BlockRun>> runs_;
  std::vector<Block*> blocks_;
  std::vector<Warp*> warps_;
  size_t next_ = 0, done_ = 0;
  uint64_t executed_ = 0;
  std::unique_ptr<Recorder> recorder_;  // null: this cluster is not recorded
};

struct HostWorker : Worker {
  explicit HostWorker(Launch* launch);
  void run();

  std::vector<uint64_t> counts;
  std::vector<LineTally> line_tallies;  // empty: no profile
  std::vector<Region> region_by_ordinal;
  std::map<const Allocation*, std::unique_ptr<KnownAllocation>> known;
  KnownAllocation* recent = nullptr;

 private:
  bool advance(ClusterRun& cluster, uint64_t slice);

  uint64_t random_;  // for the lengths of its turns
};

// Completes barriers that only waited for warps which have ended.
void recheck_barriers(Block& block);
void recheck_cluster_barrier(Cluster& cluster);

// Reports why a warp can never go on. blocked_text says what its blocked instruction waits for.
void report_deadlock(Warp& w);
std::string blocked_text(const Warp& w, const Inst& inst, const Strand& strand);
// Reports a barrier of the whole block that is complete without warps that have ended. Lanes that
// have ended in a warp which arrives are missed by nobody: that is PTX's own rule.
void report_left_barrier(const Block& block, const Barrier& b);
std::string cluster_barrier_text(const Cluster& cluster);
// Returns text such as "lane 3" or "lanes 0-15, 20".
std::string lanes_text(uint32_t mask);
// Says who waits at the convergent instruction w.pc, and where the lanes stand that the instruction
// waits for.
std::string divergent_text(const Warp& w);

// Returns the counters of the PTX lines that ran, by line.
std::vector<LineCounters> collect_lines(const Launch& launch,
                                        const std::vector<std::unique_ptr<HostWorker>>& workers);
// Says whether the instruction waits for others.
bool waits(const InstInfo& info);
// Puts findings in order and sums counters over the workers.
Counters collect(const Launch& launch, const std::vector<std::unique_ptr<HostWorker>>& workers);

}  // namespace sim
