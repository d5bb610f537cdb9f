// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Every family's geometry answers these: how large a launch is and what it moves. From the latter
// follows what a call would take at best.
#pragma once

#include <cstdint>

namespace lathe {

struct DeviceFacts;  // codegen/device_facts.h

struct Grid {
  unsigned x = 1, y = 1, z = 1;
};

// A call must move and compute at least this.
struct Cost {
  uint64_t minimum_bytes = 0;  // every input read once, every output written once
  uint64_t bytes = 0;          // what these tiles move, halo rows and partial results included
  uint64_t flops = 0;
  uint64_t tensor_ops = 0;  // what matrix instructions do, pairs that do not count included
  // Cycles of the thread blocks that follow one another on a multiprocessor, where a family knows
  // them: what is left if memory and tensor cores were free.
  uint64_t chain_cycles = 0;
};

// Predicts from a cost, from how long the thread blocks take by themselves where that is known, and
// from the published rates of a device. Otherwise a prediction knows nothing of latencies, of what
// does not overlap, nor of a product's instruction that cannot reach the published rate.
struct Prediction {
  // 0 where the rate is not known
  double memory_microseconds = 0, tensor_microseconds = 0, chain_microseconds = 0;
  double launch_microseconds = 0;
  double microseconds = 0;       // the longest of them; 0 if the rate that matters is not known
  const char* bound = "memory";  // which: "memory", "tensor", "chain" or "launch"
};
Prediction predict(const Cost& cost, uint64_t launches, const DeviceFacts& facts);

}  // namespace lathe
