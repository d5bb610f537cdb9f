// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Declares sparse_flash_attention behind the plan: the request of a problem, and the operator's own
// checks.
#pragma once

#include "ops/executor.h"
#include "ops/resolve.h"
#include "ops/sparse/backward_kernels.h"
#include "ops/sparse/schema.h"

namespace lathe {

// Holds the properties that select the code, and the numbers that are only passed to the kernels.
struct SparseRequest {
  SparseProblem problem;
  float scale = 0;
  bool tokens = false;     // rows and keys on one axis each, with offsets or without
  bool positions = false;  // q_pos is there and counts
  bool causal = false, absolute = false;
  int block_shift = 0;
  int64_t splits = 0;         // 0: chosen
  SparseGradients gradients;  // those that are asked for
};

// Refuses problems that the tables cannot exclude: wrong widths, groups of heads that are not
// whole, tensors of which only some are packed, and options without the option that they need.
Status check_sparse(const Resolved& resolved);

// Makes the checks that a problem with open extents leaves to its calls. kUnknown passes.
Status check_sparse_extents(const Extents& extents, int block_shift);

// Returns UNSUPPORTED, by name, for features that no template covers.
Result<SparseRequest> sparse_request(const Resolved& resolved);

// Describes the ranks that rows and keys are split over.
struct SparseGroup {
  Group* group = nullptr;     // null: one device
  bool reduce_sinks = false;  // dsinks are summed over the ranks
  bool narrow = false;        // gradients of keys travel in the keys' type
};
// Returns UNSUPPORTED, by name, for flags of a group that sparse attention does not support.
Result<SparseGroup> sparse_group(const lathe_problem& problem);

// Chooses kernels; compiles nothing.
MadeExecutor make_sparse(const Resolved& resolved, const DeviceFacts& facts);

}  // namespace lathe
