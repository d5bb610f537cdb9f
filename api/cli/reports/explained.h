// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Explain says what was counted, kernel by kernel and in all, how long the call takes by the
// simulator's clock, or at least by a data sheet where the clock says nothing, and the lines for
// people, from the objects that --json prints.
#pragma once

#include <vector>

#include "api/cli/options.h"
#include "api/cli/reports/report.h"

namespace lathe::cli {

using Row = std::vector<std::string>;
// Prints a table whose first column is aligned to the left, the others to the right.
void print_table(const std::vector<Row>& rows);

struct CountOptions {
  ProblemOptions problem;
  DeviceOptions device;  // its arch must be given
  std::string picture;   // what the names of the clock's pictures begin with; "": none
};

struct Counts {
  Json launches;        // the simulator's lines
  Json clock;           // those of its clock; none for a GPU that the clock does not know
  std::string missing;  // why there are none; ""
};

// Counts a call's launches on the simulator of a named GPU, some thread blocks of each, and replays
// them by the clock. The simulator is one device for a process, so each GPU is asked
// in a process of its own: the hidden verb `count` of this program.
Counts count_launches(const CountOptions& options, const std::string& gpu);

// {"kernels": [...], "total": {...}}: each with launches, blocks, sampled_blocks, memory_bytes,
// l2_bytes, shared_bytes, shared_passes, shared_conflicts, issue_slots (instructions of warps,
// copies of registers left out), tensor_ops, and by the data sheet of the GPU alone, the
// microseconds that each resource takes by itself, and microseconds and bound, of the longest of
// them: the least that the GPU can take. Kernels of the plan that are not launched for these shapes
// are not among them. Null if a launch is of no kernel of the plan.
Json counts_json(const lathe_plan* plan, const Json& launches);

// {"gpu", "microseconds", "bound", "from": "clock", "counts" or "formulas", "sentence"}. `clock` is
// what clock_json returned, `counted` what counts_json did, or null. The clock tells a time. Where
// it does not know the GPU, the data sheet bounds the time from below, by what was counted or by
// what formulas count; `from` and `sentence` say so.
Json prediction_json(const lathe_estimate& estimate, const Json& counted, const Json& clock);

// The words of the report for a resource that the simulator or the library names.
std::string resource_word(const std::string& name);

// Digests of the kernels' PTX, as the simulator's lines have them in "module".
std::vector<std::string> digests_of(const lathe_plan* plan);

// {"gpu", "microseconds" (with starting kernels), "launch_microseconds", "tflop_per_s",
// "gigabytes_per_s", "bound", "from": "sass" or "ptx", "kernels": [...]}: each kernel with its
// launches, and what the clock says of the longest. Null if the clock says nothing, or a launch is
// of no kernel of the plan.
Json clock_json(const lathe_plan* plan, const Json& launches, const std::string& gpu);
// Prints a table of the kernels' times, a row for each.
void print_clock_times(const Json& clock);
// Prints what the clock says of each kernel.
void print_clock(const Json& clock);
// Prints what the clock says of one launch, beneath a line that names it.
void print_clock_details(const Json& kernel);

// Kernels, what they are made of, and what they cost on one device.
void print_explained(const Json& report);

// Prints the cost on several devices, side by side.
void print_side_by_side(const std::vector<Json>& reports);

}  // namespace lathe::cli
