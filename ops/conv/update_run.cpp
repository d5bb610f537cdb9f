// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// causal_conv1d_update behind the plan: one kernel, no workspace.
#include <algorithm>

#include "codegen/base/invalid.h"
#include "ops/conv/kernels.h"
#include "ops/conv/run.h"
#include "templates/params/conv.h"

namespace lathe {
namespace {

class ConvUpdateExecutor final : public Executor {
 public:
  ConvUpdateExecutor(const ConvProblem& problem, ConvKernels kernels)
      : problem_(problem), kernels_(std::move(kernels)) {
    list({&kernels_.update});
  }

  Result<size_t> workspace_bytes(const Call&) const override { return size_t{0}; }
  Result<Estimate> estimate(const Call& call) const override {
    return Estimate{1, conv_cost(problem_, kernels_, shape(call))};
  }
  Status run(const Call& call) const override;

 private:
  static ConvShape shape(const Call& call) {
    const int64_t batch = call.extents[Dim::B];
    return {batch, 1, call.extents[Dim::D], batch};
  }

  ConvProblem problem_;
  ConvKernels kernels_;
};

Status ConvUpdateExecutor::run(const Call& call) const {
  const auto& t = call.tensors;
  const ConvShape extent = shape(call);
  // A block does at least one sequence of 32 channels: what this refuses no memory holds.
  if ((extent.channels + 31) / 32 > kMaxExtent / std::max<int64_t>(extent.batch, 1)) {
    return Status(Code::unsupported,
                  text("x [", extent.batch, ", ", extent.channels, "] needs more than ", kMaxExtent,
                       " blocks; split the batch"));
  }
  ConvUpdateParams p = {};
  fill_tensors<conv_update::kTensors>(call, false, &p);
  p.x_stride = t[conv_update::x].stride[0];
  p.residual_stride = t[conv_update::residual].stride[0];
  p.y_stride = t[conv_update::y].stride[0];
  p.state_stride = t[conv_update::state].stride[0];
  p.batch = static_cast<int>(extent.batch);
  p.channels = static_cast<int>(extent.channels);
  return kernels_.update.launch(kernels_.update_by->grid(*kernels_.update, extent), &p,
                                call.stream);
}

}  // namespace

Result<std::unique_ptr<Executor>> make_conv_update(const ConvProblem& problem,
                                                   const DeviceFacts& facts) {
  LATHE_ASSIGN(ConvKernels kernels, conv_kernels(problem, facts, false));
  return executor_of<ConvUpdateExecutor>(problem, std::move(kernels));
}

}  // namespace lathe
