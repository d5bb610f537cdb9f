// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// sparse_flash_attention on one device, in the steps that ranks put exchanges between.
#pragma once

#include <algorithm>

#include "ops/sparse/params.h"

namespace lathe {

class SparseExecutor final : public Executor {
 public:
  SparseExecutor(const SparseRequest& request, const SparseKernels& kernels,
                 const SparseBackwardKernels& backward, const DeviceFacts& facts);

  Result<size_t> workspace_bytes(const Call& call) const override;
  Result<Estimate> estimate(const Call& call) const override;
  Status run(const Call& call) const override;

  // What the shapes of a call decide. Forward and backward have the workspace one after the other.
  struct Launch {
    SparseShape shape;
    bool forward = false;                            // there is a row to write
    int64_t splits = 1, head_tiles = 0, blocks = 0;  // of the forward
    SparsePartials partials;
    SparseBackwardLaunch backward;

    int64_t workspace() const { return std::max(partials.total, backward.workspace.total); }
  };
  Result<Launch> plan_launch(const Call& call) const;
  Result<Estimate> estimate(const Launch& launch) const;

  // The steps of a run, in this order. `places` null: the whole axes are here.
  Status run_forward(const Call& call, const Launch& launch, const SparsePlaces* places) const;
  // Reads no key: delta, and the sums of key gradients become 0.
  Status run_prepare(const Call& call, const Launch& launch) const;
  Status run_backward(const Call& call, const Launch& launch, const SparsePlaces* places) const;
  // From sums to what `p` asks for.
  Status run_finish(const SparseBackwardFinishParams& p, CUstream stream) const;

  const SparseRequest& request() const { return request_; }
  const SparseProblem& problem() const { return request_.problem; }
  bool has_backward() const { return backward_.prepare.has_value(); }
  int finish_threads() const { return backward_.finish->threads; }

 private:
  SparseShape shape(const Call& call) const;
  Status plan_forward(Launch* launch) const;
  Status plan_backward(Launch* launch) const;
  Status run_rows(const SparseBackwardCall& of, int64_t first, CUstream stream) const;

  SparseRequest request_;
  SparseKernels kernels_;
  SparseBackwardKernels backward_;  // empty slots without a backward
  int64_t multiprocessors_, cached_;
};

}  // namespace lathe
