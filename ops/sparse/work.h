// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The work of sparse_flash_attention on one device, in the steps that ranks put exchanges between.
#pragma once

#include <algorithm>

#include "ops/sparse/params.h"

namespace lathe {

class SparseWork final : public Work {
 public:
  SparseWork(const SparseRequest& request, const SparseKernels& kernels,
             const std::optional<SparseBackwardKernels>& backward, const DeviceFacts& facts);

  const std::vector<KernelSpec>& specs() const override { return specs_; }
  void bind(const std::vector<PlanKernel>& kernels) override;
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

    int64_t workspace() const {
      return std::max(static_cast<int64_t>(partials.total), backward.workspace.total);
    }
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
  bool has_backward() const { return backward_.has_value(); }
  int finish_threads() const { return backward_->finish.threads; }

 private:
  struct Loaded {
    std::shared_ptr<const Kernel> forward, combine;
    std::shared_ptr<const Kernel> prepare, main, ranges, fill, gather, finish;
  };
  SparseShape shape(const Call& call) const;
  Status plan_forward(Launch* launch) const;
  Status plan_backward(Launch* launch) const;
  Status run_rows(const SparseBackwardCall& of, int64_t first, CUstream stream) const;

  SparseRequest request_;
  SparseKernels kernels_;
  std::optional<SparseBackwardKernels> backward_;
  int64_t multiprocessors_, cached_;
  std::vector<KernelSpec> specs_;
  Loaded loaded_;
};

}  // namespace lathe
