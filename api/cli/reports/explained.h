// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Explain says what was counted, kernel by kernel and in all, the prediction that follows from it
// or from formulas alone, and the lines for people, from the objects that --json prints.
#pragma once

#include <vector>

#include "api/cli/options.h"
#include "api/cli/reports/report.h"

namespace lathe::cli {

struct CountOptions {
  ProblemOptions problem;
  DeviceOptions device;  // its arch must be given
  bool clock = false;    // also replay the launches in time
  std::string picture;   // what the names of the replay's pictures begin with; "": none
};

struct Counts {
  Json launches;        // the simulator's lines
  Json clock;           // those of its clock, if they are wanted
  std::string missing;  // why there are none; ""
};

// Counts a call's launches on the simulator of a named GPU, some thread blocks of each, with what
// its model of cost makes of them. The simulator is one device for a process, so each GPU is asked
// in a process of its own: the hidden verb `count` of this program.
Counts count_launches(const CountOptions& options, const std::string& gpu);

// The longest that thread blocks that must follow one another take, as formulas know of some.
inline constexpr const char* kBlocksInTurn = "thread blocks in turn";

// {"kernels": [...], "total": {...}}: each with launches, blocks, sampled_blocks, memory_bytes,
// l2_bytes, shared_bytes, shared_passes, shared_conflicts, issue_slots (instructions of warps,
// copies of registers left out), tensor_ops, microseconds, bound, and alone: the microseconds that
// each resource would take by itself. Kernels of the plan that are not launched for these shapes
// are not among them. Null if a launch is of no kernel of the plan.
Json counts_json(const lathe_plan* plan, const Json& launches);

// {"gpu", "microseconds", "bound", "from": "counts" or "formulas", "sentence"}. `counted`: the
// above, or null. Formulas know thread blocks in turn, which counts do not, and that is kept.
Json prediction_json(const lathe_estimate& estimate, const Json& counted);

// Digests of the kernels' PTX, as the simulator's lines have them in "module".
std::vector<std::string> digests_of(const lathe_plan* plan);

// {"gpu", "microseconds" (with starting kernels), "launch_microseconds", "tflop_per_s",
// "gigabytes_per_s", "bound", "from": "sass" or "ptx", "kernels": [...]}: each kernel with its
// launches, and what the clock says of the longest. Null if a launch is of no kernel of the plan.
Json clock_json(const lathe_plan* plan, const Json& launches, const std::string& gpu);
void print_clock(const Json& clock);
// Prints what the clock says of one launch, beneath a line that names it.
void print_clock_details(const Json& kernel);

// Kernels, what they are made of, and what they cost on one device.
void print_explained(const Json& report);

// Prints the cost on several devices, side by side.
void print_side_by_side(const std::vector<Json>& reports);

}  // namespace lathe::cli
