// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Declares sparse_flash_attention behind the plan: the request of a problem, the operator's own
// checks, and the executor of one device.
#pragma once

#include <algorithm>

#include "ops/executor.h"
#include "ops/sparse/backward_kernels.h"
#include "ops/sparse/forward/step.h"
#include "ops/sparse/schema.h"
#include "templates/params/sparse_attention.h"

namespace lathe {

// Holds the properties that select the code, and the numbers that are only passed to the kernels.
struct SparseRequest {
  SparseProblem problem;
  float scale = 0;
  bool tokens = false;     // rows and keys on one axis each, with offsets or without
  bool positions = false;  // q_pos is there and counts
  bool causal = false, absolute = false;
  bool sinks_apart = false;  // statistics leave the sinks out
  int block_shift = 0;
  int64_t splits = 0;  // 0: chosen
  bool rank_invariant = false;
  SparseGradients gradients;  // those that are asked for
};

// Refuses problems that the tables cannot exclude: wrong widths, groups of heads that are not
// whole, tensors of which only some are packed, and options without the option that they need.
Status check_sparse(const Resolved& resolved);

// Checks the bytes of a row. kUnknown passes.
Status check_byte_rows(int64_t bytes);

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

// Replaces offsets and positions if rows and keys are a part of the whole axes.
struct SparsePlaces {
  // If packed, these describe runs of rows that are of one sequence, as SparseInputs describes
  // sequences.
  const void* cu_seqlens_q = nullptr;
  const void* key_starts = nullptr;
  const void* key_ends = nullptr;
  const void* key_origins = nullptr;
  int64_t runs = 0;
  int64_t whole_keys = 0;  // S2 of the whole axis
  const void* q_pos =
      nullptr;  // int32 [rows], of each sequence of a batch; null: the caller's, or none
};

// Holds what follows from the shapes of a call. Forward and backward use the workspace one after
// the other, from its start.
struct SparsePlan {
  SparseShape shape;
  bool forward = false;                            // there is a row to write
  int64_t splits = 1, head_tiles = 0, blocks = 0;  // of the forward
  SparsePartials partials;
  SparseBackwardLaunch backward;

  int64_t total() const { return std::max(partials.total, backward.workspace.total); }
};

struct SparseKernels {
  std::unique_ptr<SparseForward> forward;  // none if only gradients are asked for
  KernelSlot combine;
  SparseBackwardKernels backward;
};
Result<SparseKernels> sparse_kernels(const SparseProblem& problem, const DeviceFacts& facts);

// Runs sparse_flash_attention on one device, in steps between which ranks run exchanges.
class SparseExecutor final : public PlannedExecutor<SparseExecutor, SparsePlan> {
 public:
  SparseExecutor(const SparseRequest& request, SparseKernels kernels, const DeviceFacts& facts);

  Result<SparsePlan> plan(const Call& call) const;
  Status launch(const Call& call, const SparsePlan& plan) const;
  Result<Estimate> estimate_plan(const Call& call, const SparsePlan& plan) const;

  // A run has these steps, in this order. If `places` is null the whole axes are here.
  Status run_forward(const Call& call, const SparsePlan& plan, const SparsePlaces* places) const;
  // Computes delta, and sets the sums of key gradients to 0. Reads no key.
  Status run_prepare(const Call& call, const SparsePlan& plan) const;
  Status run_backward(const Call& call, const SparsePlan& plan, const SparsePlaces* places) const;
  // Converts sums to the gradients that `p` asks for.
  Status run_finish(const SparseBackwardFinishParams& p, CUstream stream) const;
  SparseBackwardFinishParams finish_params(const Call& call, const SparsePlan& plan) const;

  const SparseRequest& request() const { return request_; }
  const SparseProblem& problem() const { return request_.problem; }
  bool has_backward() const { return kernels_.backward.prepare.has_value(); }

 private:
  SparseShape shape(const Call& call) const;
  Status plan_forward(SparsePlan* plan) const;
  Status plan_backward(SparsePlan* plan) const;
  Status run_rows(const SparseBackwardParams& p, const SparsePlan& plan, const Call& call) const;

  SparseRequest request_;
  SparseKernels kernels_;
  int64_t multiprocessors_, cached_;
};

}  // namespace lathe
