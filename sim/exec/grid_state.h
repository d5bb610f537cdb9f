// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A launch while it runs: what its host threads share, and what each owns.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "sim/exec/launch.h"
#include "sim/exec/warp.h"

namespace sim {

struct RaceGrid;

// Shared by the host threads of one run_grid.
struct Launch {
  const Grid* grid = nullptr;
  const Profile* profile = nullptr;
  Memory* memory = nullptr;
  const Settings* settings = nullptr;
  const Function* function = nullptr;
  LaunchView view;
  std::vector<uint32_t> tid[3];
  uint64_t blocks = 0;
  std::shared_ptr<RaceGrid> races;  // null: not checked

  std::atomic<uint64_t> next_block{0};
  std::atomic<uint64_t> executed{0};
  std::atomic<int> error{0};  // not 0: everybody stops
  std::mutex mutex;           // of what follows
  std::vector<Finding> findings;
  std::map<std::pair<uint32_t, int>, int> reported;  // by instruction and fault
};

// One allocation as a worker knows it.
struct KnownAllocation {
  std::shared_ptr<const Allocation> allocation;
  Region region;
  std::vector<uint64_t> loaded, stored;
};

// A block with the memory behind it; used again for the next block.
class BlockRun {
 public:
  BlockRun(Worker* worker, const Launch& launch);
  void start(uint64_t linear);
  // Runs up to `budget` warp instructions. False when the block is done or the grid stops.
  bool advance(uint64_t budget);

 private:
  bool deadlock();

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
};

struct HostWorker : Worker {
  explicit HostWorker(Launch* launch);
  void run();

  std::vector<uint64_t> counts;
  std::vector<Region> region_by_ordinal;
  std::map<const Allocation*, std::unique_ptr<KnownAllocation>> known;
  KnownAllocation* recent = nullptr;
};

// Completes barriers that only waited for warps which have ended.
void recheck_barriers(Block& block);

// Findings in order, counters summed over the workers.
Counters collect(const Launch& launch, const std::vector<std::unique_ptr<HostWorker>>& workers);

}  // namespace sim
