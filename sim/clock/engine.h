// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One multiprocessor, or those of a cluster: the warps of the blocks that are resident on it issue
// their instructions in time. Four parts each choose one ready warp a cycle (the one that issued
// last, else the youngest; Huerta et al.). A unit takes requests in the order of their issue, so
// that the time at which one is over is known when it is issued; only barriers are decided by
// others.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "sim/clock/machine.h"
#include "sim/clock/program.h"
#include "sim/clock/walk/walk.h"

namespace sim::clock {

// Why a warp did not issue, in the words of Nsight Compute.
enum class Stall : uint8_t {
  selected,          // it did
  wait,              // a fixed number of cycles
  long_scoreboard,   // global and local memory
  short_scoreboard,  // shared memory, ex2 and the like
  barrier,
  mbarrier,       // a phase that is not over: data of a bulk copy, or another role
  async_copy,     // cp.async or bulk groups
  wgmma,          // products that are not over
  math_throttle,  // a unit of the part is busy
  tensor_throttle,
  memory_throttle,  // shared memory's or L1's queue is full
  not_selected      // another warp of the part was chosen
};
constexpr int kStalls = static_cast<int>(Stall::not_selected) + 1;
extern const char* const kStallNames[kStalls];

// A ReplaySetup says what the blocks need and get.
struct ReplaySetup {
  double dram_share = 1;  // of the sectors that leave L1, those that L2 does not have
  double prefetched = 0;  // of those, what somebody asked for ahead of the loads
  double active = 1;      // multiprocessors that work at the same time, of all
  uint32_t l1_bytes = 0;  // what shared memory leaves
  int resident = 1;       // blocks at a time on each multiprocessor
  int cluster = 1;        // blocks of a cluster, each on a multiprocessor of its own
};

// An Interval is a stretch of time of one warp, for pictures.
struct Interval {
  uint32_t block, warp;
  float begin, end;
  uint8_t kind;  // Unit, or 64 + Stall
};

// A BackEdge is the issue of a branch that leads back, by a warp of one block.
struct BackEdge {
  uint32_t op, warp;
  float time;
};

struct OpCost {
  uint64_t issued = 0;
  std::array<double, kStalls> stalls{};
};

struct BlockTime {
  uint32_t block = 0;  // index of the trace
  double begin = 0, end = 0;
};

struct ReplayResult {
  double cycles = 0;
  // These count for how many cycles a multiprocessor's resources were busy, the units of all its
  // parts together. Where a cluster has several multiprocessors, each figure is their average.
  std::array<double, kUnits> busy{};
  double l2_port_busy = 0, dram_busy = 0, shared_busy = 0;
  double l2_bytes = 0, dram_bytes = 0;
  double issued = 0;
  std::vector<OpCost> ops;                         // by instruction of the program
  std::vector<std::array<double, kStalls>> warps;  // by warp of a block, summed over blocks
  std::vector<std::vector<bool>> ran;              // by warp of a block: instructions it issued
  std::vector<BackEdge> back_edges;                // of the block that has most
  std::vector<BlockTime> blocks;
  std::vector<Interval> intervals;
  bool stuck = false;  // warps waited for what never came; they were let go
};

// Replays the blocks in order, `setup.resident` clusters at a time. Clusters are whole.
ReplayResult replay(const Machine& machine, const SassMap& map,
                    const std::vector<BlockTrace>& blocks, const ReplaySetup& setup,
                    size_t most_intervals);

}  // namespace sim::clock
