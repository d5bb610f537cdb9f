// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// From a call of sparse_flash_attention to the parameters of its kernels.
#pragma once

#include <algorithm>

#include "ops/sparse/run.h"
#include "templates/params/sparse_attention.h"

namespace lathe {

// Rows and keys that are a part of the whole axes: what then stands for offsets and positions.
struct SparsePlaces {
  // Packed: runs of rows that are of one sequence, as SparseInputs has sequences.
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

// The forward; its partial results begin with the workspace.
SparseForwardParams sparse_forward_params(const SparseCall& of, int64_t head_tiles, int64_t splits,
                                          const SparsePartials& partials);
SparseCombineParams sparse_combine_params(const SparseCall& of, const SparseForwardParams& forward);

// The backward, which has `workspace` behind the forward.
struct SparseBackwardCall {
  const SparseCall& of;
  const SparseBackwardLaunch& launch;
  char* workspace;
};
SparseBackwardPrepareParams sparse_prepare_params(const SparseBackwardCall& of);
// Of all rows, or of the chunk that begins at `first_row`.
SparseBackwardParams sparse_backward_params(const SparseBackwardCall& of, int64_t first_row);
SparseBackwardGatherParams sparse_gather_params(const SparseBackwardCall& of,
                                                const SparseBackwardParams& main, int64_t rows);
SparseBackwardFinishParams sparse_finish_params(const SparseBackwardCall& of);

// What the shapes of a call decide. Forward and backward have the workspace one after the other.
struct SparsePlan {
  SparseShape shape;
  bool forward = false;                            // there is a row to write
  int64_t splits = 1, head_tiles = 0, blocks = 0;  // of the forward
  SparsePartials partials;
  SparseBackwardLaunch backward;

  int64_t total() const { return std::max(partials.total, backward.workspace.total); }
};

// sparse_flash_attention on one device, in the steps that ranks put exchanges between.
class SparseExecutor final : public PlannedExecutor<SparseExecutor, SparsePlan> {
 public:
  SparseExecutor(const SparseRequest& request, const SparseKernels& kernels,
                 const SparseBackwardKernels& backward, const DeviceFacts& facts);

  Result<SparsePlan> plan(const Call& call) const;
  Status launch(const Call& call, const SparsePlan& plan) const;
  Result<Estimate> estimate_plan(const Call& call, const SparsePlan& plan) const;

  // The steps of a run, in this order. `places` null: the whole axes are here.
  Status run_forward(const Call& call, const SparsePlan& launch, const SparsePlaces* places) const;
  // Reads no key: delta, and the sums of key gradients become 0.
  Status run_prepare(const Call& call, const SparsePlan& launch) const;
  Status run_backward(const Call& call, const SparsePlan& launch, const SparsePlaces* places) const;
  // From sums to what `p` asks for.
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
