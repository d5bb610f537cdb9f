// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The simulator's environment, read once when the driver is initialised.
#pragma once

#include <cstdint>
#include <string>

#include "sim/exec/launch.h"

namespace sim::driver {

struct Options {
  std::string arch = "sm_90a";     // LATHE_SIM_ARCH
  int devices = 1;                 // LATHE_SIM_DEVICES
  uint64_t seed = 0;               // LATHE_SIM_SEED: order of streams, poison of fresh memory
  int threads = 0;                 // LATHE_SIM_THREADS: host threads that run one grid
  uint32_t check = kMemcheck;      // LATHE_SIM_CHECK=none|memory|all
  uint64_t memory_bytes = 0;       // LATHE_SIM_MEMORY_BYTES: 0, the profile's
  uint64_t instruction_limit = 0;  // LATHE_SIM_INSTRUCTION_LIMIT: warp instructions per launch
  std::string report;              // LATHE_SIM_REPORT: a file to append to, "-" for stderr
};

// False if a variable holds something that is not allowed; `what` then says which and why.
bool read_options(Options* out, std::string* what);

}  // namespace sim::driver
