// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// From the replay of some blocks to the time of a whole grid.
#pragma once

#include <string>
#include <vector>

#include "sim/clock/engine.h"
#include "sim/exec/launch.h"

namespace sim::clock {

struct KernelTime {
  std::string kernel, gpu;
  std::string from;                // "sass" or "ptx"
  std::string made_by;             // the tools, or why the code is PTX
  double microseconds = 0;         // from the first block's start to the last one's end
  double launch_microseconds = 0;  // that an idle device adds
  double cycles = 0, clock_hz = 0;
  double tflop_per_s = 0, gigabytes_per_s = 0;
  std::string bound;  // the busiest resource, or "latency"
  uint32_t registers = 0;
  int resident = 0;     // blocks of a multiprocessor
  double waves = 0;     // blocks of the grid for each place
  double tail = 0;      // share of the time in which some places are empty
  double mapped = 1;    // machine code: share of what the PTX did that the walk met
  double recorded = 1;  // share of the instructions of the replayed blocks: long blocks are cut
  struct ResourceUse {
    std::string resource;
    double share;  // of the time in which the replayed blocks ran
  };
  std::vector<ResourceUse> use;
  ReplayResult replay;
  Program program;
};

struct ReplayOptions {
  size_t intervals = 0;   // of warps, for a picture: at most so many
  bool ptx_only = false;  // do not look for machine code
};

// The numbers of blocks that are worth recording for a grid.
uint64_t blocks_to_trace(const Grid& grid, const Profile& profile);

// `counters` and `traces` are of a run of the grid; null `gpu` constants give an empty result.
KernelTime time_kernel(const Grid& grid, const Profile& profile, const Counters& counters,
                       const std::vector<BlockTrace>& traces, const Machine& machine,
                       const ReplayOptions& options = {});

// The same with machine code that somebody else has made of the kernel. If it has no instructions,
// `made_by` says why, and the PTX is replayed.
KernelTime time_program(Program program, const Grid& grid, const Profile& profile,
                        const Counters& counters, const std::vector<BlockTrace>& traces,
                        const Machine& machine, const ReplayOptions& options = {});

}  // namespace sim::clock
