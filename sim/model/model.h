// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This cost model computes, from a launch's counters, the cycles that the launch would take on a
// device at best. Every resource is taken to be busy all the time and to overlap with all others,
// so
//
//   cycles = latency + the largest of (work of a resource / its rate)
//
// and that resource is the bound. It knows nothing of stalls, so it predicts what a kernel could
// reach, not what it does; two versions of a kernel compare better than one with a clock. The rates
// are in model.cpp, one table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/exec/launch.h"

namespace sim::model {

// Holds the rates of an architecture's multiprocessor.
struct Rates {
  // These rates are warp instructions per cycle.
  double issue, integer, floating, half, convert, math, memory, shuffle;
  double shared_wavefronts;  // per cycle
  double sectors;            // of 32 bytes between L2 and a multiprocessor, per cycle
};

struct Gpu : Rates {
  const char* name;  // as LATHE_SIM_GPU has it
  int multiprocessors;
  double clock_hz;
  double l2_bytes;        // per cycle, of the device
  double dram_bytes;      // per second, of the device
  double tensor_ops;      // per cycle and multiprocessor, dense bf16
  double latency;         // cycles of one way to DRAM and back
  double launch_seconds;  // from one kernel's end to the next one's start
  double link_bytes;      // per second, to another device, each way
  double host_bytes;      // per second, to the host, each way
};

// This time passes from two devices that are ready to the first byte at the other one: the time
// that a grouped send and receive inside a machine costs beside its bytes.
constexpr double kLinkLatency = 5e-6;

// Finds a GPU by Gpu::name; null if unknown.
const Gpu* find_gpu(const std::string& name);

struct Term {
  const char* resource;
  double cycles;
};

struct Prediction {
  double cycles = 0;        // without the launch
  double seconds = 0;       // with it
  std::string bound;        // a resource, or "launch" where that takes longer than the work
  std::vector<Term> terms;  // of all resources
};

// `blocks` is the number of blocks of the grid; work is spread evenly over as many multiprocessors
// as there are blocks for.
Prediction predict(const Counters& counters, uint64_t blocks, const Gpu& gpu);

}  // namespace sim::model
