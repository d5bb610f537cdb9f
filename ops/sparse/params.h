// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Converts a call of sparse_flash_attention to the parameters of its kernels.
#pragma once

#include <algorithm>

#include "ops/sparse/run.h"
#include "templates/params/sparse_attention.h"

namespace lathe {

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

struct SparseCall {
  const SparseRequest& request;
  const SparseShape& shape;
  const Call& call;
  const SparsePlaces* places = nullptr;  // null: the whole axes
};

// Return the forward's parameters. Its partial results begin at the start of the workspace.
SparseForwardParams sparse_forward_params(const SparseCall& of, int64_t head_tiles, int64_t splits,
                                          const SparsePartials& partials);
SparseCombineParams sparse_combine_params(const SparseCall& of, const SparseForwardParams& forward);

// Holds a call of the backward, whose `workspace` lies behind the forward's.
struct SparseBackwardCall {
  const SparseCall& of;
  const SparseBackwardLaunch& launch;
  char* workspace;
};
SparseBackwardPrepareParams sparse_prepare_params(const SparseBackwardCall& of);
// Returns the parameters for all rows, or for the chunk that begins at `first_row`.
SparseBackwardParams sparse_backward_params(const SparseBackwardCall& of, int64_t first_row);
SparseBackwardGatherParams sparse_gather_params(const SparseBackwardCall& of,
                                                const SparseBackwardParams& main, int64_t rows);
SparseBackwardFinishParams sparse_finish_params(const SparseBackwardCall& of);

// Holds what follows from the shapes of a call. Forward and backward use the workspace one after
// the other.
struct SparsePlan {
  SparseShape shape;
  bool forward = false;                            // there is a row to write
  int64_t splits = 1, head_tiles = 0, blocks = 0;  // of the forward
  SparsePartials partials;
  SparseBackwardLaunch backward;

  int64_t total() const { return std::max(partials.total, backward.workspace.total); }
};

// Runs sparse_flash_attention on one device, in steps between which ranks run exchanges.
class SparseExecutor final : public PlannedExecutor<SparseExecutor, SparsePlan> {
 public:
  SparseExecutor(const SparseRequest& request, const SparseKernels& kernels,
                 const SparseBackwardKernels& backward, const DeviceFacts& facts);

  Result<SparsePlan> plan(const Call& call) const;
  Status launch(const Call& call, const SparsePlan& plan) const;
  Result<Estimate> estimate_plan(const Call& call, const SparsePlan& plan) const;

  // A run has these steps, in this order. If `places` is null the whole axes are here.
  Status run_forward(const Call& call, const SparsePlan& launch, const SparsePlaces* places) const;
  // Computes delta, and sets the sums of key gradients to 0. Reads no key.
  Status run_prepare(const Call& call, const SparsePlan& launch) const;
  Status run_backward(const Call& call, const SparsePlan& launch, const SparsePlaces* places) const;
  // Converts sums to the gradients that `p` asks for.
  Status run_finish(const SparseBackwardFinishParams& p, CUstream stream) const;

  const SparseRequest& request() const { return request_; }
  const SparseProblem& problem() const { return request_.problem; }
  bool has_backward() const { return backward_.prepare.has_value(); }

 private:
  SparseShape shape(const Call& call) const;
  Status plan_forward(SparsePlan* launch) const;
  Status plan_backward(SparsePlan* launch) const;
  Status run_rows(const SparseBackwardCall& of, int64_t first, CUstream stream) const;

  SparseRequest request_;
  SparseKernels kernels_;
  SparseBackwardKernels backward_;  // empty slots without a backward
  int64_t multiprocessors_, cached_;
};

}  // namespace lathe
