// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Holds the loops that `lathe_bench sim` times, as PTX.
#pragma once

#include <string>
#include <vector>

namespace bench {

// These are counted per second.
enum class Work { lanes, products, bytes };

struct SimKernel {
  const char* name;
  Work work;
  std::string ptx;           // one entry `k(out, in, n, map)`; n is how often the loop runs
  bool every_check = false;  // timed without checks, with bounds alone and with all
};

constexpr unsigned kSimThreads = 128;            // of a block
constexpr unsigned kSimInputBytes = 256u << 10;  // what `in` points to
constexpr unsigned kSimTileRows = 64;            // of the tensor map: rows of 64 bfloat16
constexpr unsigned kSimTileBytes = kSimTileRows * 128;

std::vector<SimKernel> sim_kernels();
// Ends at once, so that it costs what a launch costs.
std::string empty_kernel();

}  // namespace bench
