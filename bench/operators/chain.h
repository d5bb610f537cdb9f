// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Predicts how long a thread block takes by itself, which sim/model leaves out and which bounds a
// kernel that walks through a sequence. The inputs are the PTX of a kernel and how often each of
// its lines ran.
//
// Code is cut at barriers and where loops begin and end. A stretch between two cuts takes as long
// as the longest chain of results that wait for one another, or as long as a scheduler needs to
// issue it for all of its warps, whichever is more; stretches follow one another. Forward branches
// cut nothing: what seldom ran is left out, and copies of registers take no time. Like sim/model
// this is fitted to no measurement, and it knows nothing of the registers, the order and the caches
// that the machine code ends up with; nor does it follow a value through shared memory.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace bench {

struct Stretch {
  int first_line = 0, last_line = 0;
  double times = 0;   // that a warp runs through it
  double issue = 0;   // instructions
  double path = 0;    // cycles of the longest chain
  double global = 0;  // the part of it that is waiting for global memory
};
// Returns the stretches of a kernel whose lines ran `executions` times in `warps` warps together.
std::vector<Stretch> stretches(const std::string& ptx, const std::map<int, uint64_t>& executions,
                               double warps);

// Returns the cycles of one warp, if so many of them share a scheduler.
double chain_cycles(const std::vector<Stretch>& code, double warps_of_scheduler);
// Returns the number of instructions that a warp issues.
double chain_issue(const std::vector<Stretch>& code);

// Thread blocks on a multiprocessor.
struct Residence {
  int resident = 0;   // at the same time
  double rounds = 0;  // of them, one after another
};
struct BlockNeeds {
  int threads = 0, registers = 0, shared_bytes = 0;
};
Residence residence(const BlockNeeds& needs, double blocks, int multiprocessors,
                    int shared_bytes_per_multiprocessor, int registers_per_multiprocessor);

}  // namespace bench
