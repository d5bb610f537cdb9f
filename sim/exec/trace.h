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

// A Signal completes a part of a phase of an mbarrier: an arrival, or the bytes of a copy.
struct Signal {
  uint64_t barrier = 0;  // see mbarrier_key()
  uint64_t phase = 0;
};

// An Effect is one execution of an instruction that touches memory or waits.
struct Effect {
  uint32_t pc = 0;
  uint32_t lanes = 0;                      // 0: its guard held it back
  uint32_t wavefronts = 0;                 // passes over shared memory
  uint32_t first_run = 0, runs = 0;        // of WarpTrace::sectors
  uint32_t first_signal = 0, signals = 0;  // of WarpTrace::signals
  uint32_t bytes = 0;                      // of a bulk copy, at each of its destinations
  uint32_t count = 0;                      // threads of a barrier; 0: all of the block
  bool missed = false;                     // a wait that found its phase unfinished
  bool prefetch = false;                   // its sectors go to L2 and no further
  uint64_t barrier = 0;  // the mbarrier that it waits for, or the number of a barrier
  uint64_t phase = 0;    // of the mbarrier
};
// Says whether each execution of an instruction is an Effect.
bool leaves_effect(const Function& function, uint32_t pc);
constexpr uint64_t kNoBarrier = ~0ull;

struct WarpTrace {
  std::vector<TraceRun> runs;
  std::vector<Effect> effects;
  std::vector<SectorRun> sectors;
  std::vector<Signal> signals;
};

struct BlockTrace {
  uint32_t id[3] = {0, 0, 0};
  uint64_t linear = 0;
  uint32_t rank = 0;      // in its cluster
  uint64_t executed = 0;  // warp instructions
  uint64_t recorded = 0;  // of them
  bool cut = false;       // the recording ended before the block did
  std::vector<WarpTrace> warps;
};

// Traces are what some blocks of a grid did.
struct Traces {
  uint64_t most = 0;  // blocks to record, spread evenly over those that run
  // Warp instructions to record, shared out evenly: a long block is cut. This many take a GB at
  // most, and a replay of some ten seconds.
  uint64_t most_instructions = 64'000'000;
  std::vector<BlockTrace> blocks;  // whole clusters, in the order of the grid
};

// A Recorder belongs to one cluster at a time. While an instruction runs, handlers say what it
// touches; step() then makes an Effect of that. What is recorded up to some moment of the cluster's
// run is all that had happened by then, so that a replay of a part waits for nothing that the part
// lacks.
class Recorder {
 public:
  Recorder(const Function& function, uint64_t most_instructions)
      : function_(&function), most_(most_instructions) {}
  void start(const Block& block);  // of the cluster that runs now
  void resume(const Worker& worker);
  std::vector<BlockTrace> take(const Cluster& cluster);
  bool full() const { return instructions_ >= most_ || entries_ >= most_ / 4; }

  // The run loop calls these. `turn` ends a straight run that began at `first`.
  void turn(const Warp& warp, uint32_t first, uint32_t end, uint32_t lanes);
  void step(const Warp& warp, uint32_t pc, uint32_t lanes);
  void forget();  // the instruction will be tried again

  // Handlers call these.
  void sectors(uint64_t first, uint32_t count);
  void lanes(const uint64_t* addresses, uint32_t exec, uint32_t size);
  void copy(uint32_t bytes) { now_.bytes += bytes; }
  void barrier(uint64_t key, uint64_t phase, uint32_t count);
  void signal(uint64_t key, uint64_t phase);
  void missed() { now_.missed = true; }
  void prefetch() { now_.prefetch = true; }

 private:
  const Function* function_;
  uint64_t most_;
  std::vector<BlockTrace> blocks_;  // by rank
  Effect now_;
  std::vector<SectorRun> now_sectors_;
  std::vector<Signal> now_signals_;
  uint64_t wavefronts_ = 0;
  uint64_t instructions_ = 0, entries_ = 0;
};

constexpr uint64_t mbarrier_key(uint32_t rank, uint32_t offset) {
  return static_cast<uint64_t>(rank) << 32 | offset;
}
constexpr uint32_t mbarrier_rank(uint64_t key) { return static_cast<uint32_t>(key >> 32); }

}  // namespace sim
