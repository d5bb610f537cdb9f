// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Every family's geometry answers these: how large a launch is and what it moves and computes.
// With the rates of a data sheet the latter bounds the time of a call from below.
#pragma once

#include <cstdint>

namespace lathe {

struct DeviceFacts;  // codegen/device_facts.h

struct Grid {
  unsigned x = 1, y = 1, z = 1;
  unsigned cluster = 0;  // blocks of a cluster, all in x; 0: as the kernel's spec says
};

// A call must move and compute at least this.
struct Cost {
  uint64_t minimum_bytes = 0;  // every input read once, every output written once
  uint64_t bytes = 0;          // what these tiles move, halo rows and partial results included
  uint64_t flops = 0;
  uint64_t tensor_ops = 0;  // what matrix instructions do, pairs that do not count included
};

// Holds the least time that the rates of a data sheet allow. The device takes longer: the bound
// leaves out latencies, work that does not overlap, and instructions that are no matrix products.
// The time of a call is what the simulator's clock says, or a measurement.
struct DataSheetBound {
  // 0 where the rate is not known
  double memory_microseconds = 0, tensor_microseconds = 0;
  double launch_microseconds = 0;
  double microseconds = 0;       // the longest of them; 0 if the rate that matters is not known
  const char* bound = "memory";  // which: "memory", "tensor" or "launch"
};
DataSheetBound data_sheet_bound(const Cost& cost, uint64_t launches, const DeviceFacts& facts);

}  // namespace lathe
