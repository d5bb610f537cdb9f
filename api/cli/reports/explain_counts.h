// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What was counted, kernel by kernel and in all, in the words that explain uses; and the prediction
// that follows from it, or from formulas alone.
#pragma once

#include "api/cli/reports/report.h"

namespace lathe::cli {

// The longest that thread blocks that must follow one another take, as formulas know of some.
inline constexpr const char* kBlocksInTurn = "thread blocks in turn";

// {"kernels": [...], "total": {...}}: each with launches, blocks, sampled_blocks, memory_bytes,
// l2_bytes, shared_bytes, shared_passes, shared_conflicts, issue_slots (instructions of warps,
// copies of registers left out), tensor_ops, microseconds, bound, and alone: the microseconds that
// each resource would take by itself. Kernels of the plan that are not launched for these shapes
// are not among them. Null if a launch is of no kernel of the plan.
Json counts_json(const lathe_plan* plan, const Json& launches);

// {"gpu", "microseconds", "bound", "from": "counts" or "formulas", "sentence"}. `counted`: the
// above, or null. What formulas know and counts do not, thread blocks in turn, is kept.
Json prediction_json(const lathe_estimate& estimate, const Json& counted);

}  // namespace lathe::cli
