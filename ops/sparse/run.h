// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// sparse_flash_attention behind the plan: what a problem asks for, and the checks of its own.
#pragma once

#include "ops/executor.h"
#include "ops/resolve.h"
#include "ops/sparse/backward_kernels.h"
#include "ops/sparse/schema.h"

namespace lathe {

// What makes the code, and the numbers that are only handed to it.
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

// Refuses what the tables cannot say: widths, groups of heads that are not whole, tensors of which
// some are packed, and what options need of each other.
Status check_sparse(const Resolved& resolved);

// The part of it that a problem with open extents leaves to its calls. kUnknown passes.
Status check_sparse_extents(const Extents& extents, int block_shift);

// UNSUPPORTED, by name, for what no template covers.
Result<SparseRequest> sparse_request(const Resolved& resolved);

// The ranks that rows and keys are split over.
struct SparseGroup {
  Group* group = nullptr;     // null: one device
  bool reduce_sinks = false;  // dsinks are summed over the ranks
  bool narrow = false;        // gradients of keys travel in the keys' type
};
// UNSUPPORTED, by name, for flags of a group that sparse attention has no use for.
Result<SparseGroup> sparse_group(const lathe_problem& problem);

// Chooses kernels; compiles nothing.
MadeExecutor make_sparse(const Resolved& resolved, const DeviceFacts& facts);

}  // namespace lathe
