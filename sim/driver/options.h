// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds the simulator's environment, which is read once when the driver is initialised.
#pragma once

#include <cstdint>
#include <string>

#include "sim/exec/launch.h"

namespace sim::driver {

struct Options {
  Profile profile;                 // LATHE_SIM_GPU, or LATHE_SIM_ARCH: the first with that arch
  std::string arch;                // lathe_sim_choose_arch: in place of LATHE_SIM_ARCH
  int driver_version = 13000;      // LATHE_SIM_DRIVER_VERSION: as cuDriverGetVersion answers
  int ptx_version = 0;             // and its newest PTX, as 84 for 8.4; 0, without a choice: any
  int devices = 1;                 // LATHE_SIM_DEVICES
  uint64_t seed = 0;               // LATHE_SIM_SEED: order of streams, poison of fresh memory
  int threads = 0;                 // LATHE_SIM_THREADS: host threads that run one grid
  uint32_t check = kMemcheck;      // LATHE_SIM_CHECK: all, none, or names of checks
  uint64_t memory_bytes = 0;       // LATHE_SIM_MEMORY_BYTES: 0, the profile's
  uint64_t instruction_limit = 0;  // LATHE_SIM_INSTRUCTION_LIMIT: warp instructions per launch
  AsyncPolicy async_policy = AsyncPolicy::lazy;  // LATHE_SIM_ASYNC
  TensorSum tensor_sum = TensorSum::exact;       // LATHE_SIM_TENSOR_SUM
  // LATHE_SIM_SAMPLE_BLOCKS runs so many blocks of each larger grid and scales what they counted;
  // results are wrong then, so this option needs a timeline or counters. 0 runs all.
  uint64_t sample_blocks = 0;
  uint64_t sample_instructions = 0;
  bool profile_lines = false;  // LATHE_SIM_PROFILE: counters by PTX line
  std::string report;    // LATHE_SIM_REPORT: findings, to a file to append to or "-" for stderr
  std::string counters;  // LATHE_SIM_COUNTERS: launches, likewise
  std::string timeline;  // LATHE_SIM_TIMELINE: work in model time, likewise
  // LATHE_SIM_TIMELINE_PICTURE: what the names of the timeline's pictures begin with
  std::string timeline_picture;
  std::string clock;          // LATHE_SIM_CLOCK: times of launches by sim/clock, likewise
  std::string clock_picture;  // LATHE_SIM_CLOCK_PICTURE: what the names of its pictures begin with
  double link_bytes = 0;      // LATHE_SIM_LINK: bytes per second between devices, each way
  double link_latency = 0;    // and seconds that a message takes beside its bytes
  std::string ptxas;       // asked for registers where the guess is too high; empty: there is none
  bool quiet = false;      // LATHE_SIM_QUIET: no line on stderr for a finding
  int error_exitcode = 0;  // LATHE_SIM_ERROR_EXITCODE: what a process with findings ends with
};

// Returns false if a variable holds something that is not allowed; `what` then says which and why.
bool read_options(Options* out, std::string* what);

}  // namespace sim::driver
