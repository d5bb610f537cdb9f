// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A trace says what the warps of some blocks did, one after the other, and what each instruction
// asked of the machine. sim/clock replays it in time.
#pragma once

#include <cstdint>
#include <vector>

namespace sim {

struct Block;
struct Cluster;
struct Function;
struct Warp;
struct Worker;

// These instructions ran straight on, by some lanes of a warp.
struct TraceRun {
  uint32_t first = 0, count = 0;  // index in Function::code
  uint32_t lanes = 0;
};

// A SectorRun is neighbouring 32-byte sectors of global memory.
struct SectorRun {
  uint64_t first = 0;  // address / 32
  uint32_t count = 0;
};

// An Effect is one execution of an instruction that touches memory or waits.
struct Effect {
  uint32_t pc = 0;
  uint32_t lanes = 0;                // 0: its guard held it back
  uint32_t wavefronts = 0;           // passes over shared memory
  uint32_t first_run = 0, runs = 0;  // of WarpTrace::sectors
  uint32_t bytes = 0;                // of a bulk copy
  uint32_t count = 0;                // threads of a barrier; 0: all of the block
  bool missed = false;               // a wait that found its phase unfinished
  uint64_t barrier = 0;  // the mbarrier (its block's rank, offset) or the number of a barrier
  uint64_t phase = 0;    // of the mbarrier, that this completes a part of or waits for
};
constexpr uint64_t kNoBarrier = ~0ull;

struct WarpTrace {
  std::vector<TraceRun> runs;
  std::vector<Effect> effects;
  std::vector<SectorRun> sectors;
};

struct BlockTrace {
  uint32_t id[3] = {0, 0, 0};
  uint64_t linear = 0;
  uint32_t rank = 0;      // in its cluster
  uint64_t executed = 0;  // warp instructions
  std::vector<WarpTrace> warps;
};

// Traces are what some blocks of a grid did.
struct Traces {
  uint64_t most = 0;               // blocks to record, spread evenly over those that run
  std::vector<BlockTrace> blocks;  // whole clusters, in the order of the grid
};

// A Recorder belongs to one cluster at a time. While an instruction runs, handlers say what it
// touches; step() then makes an Effect of that.
class Recorder {
 public:
  explicit Recorder(const Function& function) : function_(&function) {}
  void start(const Block& block);  // of the cluster that runs now
  void resume(const Worker& worker);
  std::vector<BlockTrace> take(const Cluster& cluster);
  bool full() const { return entries_ > kMostEntries; }

  // The run loop calls these. `turn` ends a straight run that began at `first`.
  void turn(const Warp& warp, uint32_t first, uint32_t end, uint32_t lanes);
  void step(const Warp& warp, uint32_t pc, uint32_t lanes);
  void forget();  // the instruction will be tried again

  // Handlers call these.
  void sectors(uint64_t first, uint32_t count);
  void lanes(const uint64_t* addresses, uint32_t exec, uint32_t size);
  void copy(uint32_t bytes) { now_.bytes += bytes; }
  void barrier(uint64_t key, uint64_t phase, uint32_t count);
  void missed() { now_.missed = true; }

 private:
  static constexpr uint64_t kMostEntries = 40'000'000;

  const Function* function_;
  std::vector<BlockTrace> blocks_;  // by rank
  Effect now_;
  std::vector<SectorRun> now_sectors_;
  uint64_t wavefronts_ = 0;
  uint64_t entries_ = 0;
};

constexpr uint64_t mbarrier_key(uint32_t rank, uint32_t offset) {
  return static_cast<uint64_t>(rank) << 32 | offset;
}

}  // namespace sim
