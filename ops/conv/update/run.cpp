// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements causal_conv1d_update behind the plan.
#include "ops/conv/run.h"

#include <algorithm>

#include "codegen/base/invalid.h"
#include "ops/conv/schema.h"
#include "ops/conv/update/step.h"

namespace lathe {
namespace {

class ConvUpdateExecutor final : public Executor {
 public:
  ConvUpdateExecutor(std::unique_ptr<ConvUpdate> update, const ConvProblem& problem)
      : update_(std::move(update)), problem_(problem) {
    list({&update_->kernel});
  }

  Result<size_t> workspace_bytes(const Call&) const override { return size_t{0}; }
  Result<Estimate> estimate(const Call& call) const override {
    return Estimate{1, update_->cost(shape(call))};
  }
  Status run(const Call& call) const override {
    LATHE_TRY(check_conv_update_extents(problem_, call.extents));
    LATHE_TRY(check_gaps(call.tensors[conv_update::state]));
    const ConvShape extent = shape(call);
    // A block does at least one sequence of 32 channels: what this refuses no memory holds.
    if ((extent.channels + 31) / 32 >
        kMaxExtent / std::max<int64_t>({extent.batch, extent.sequences, 1})) {
      return unsupported(text("x [", extent.batch, ", ", extent.channels, "] needs more than ",
                              kMaxExtent, " blocks; split the batch"));
    }
    return update_->launch(call, extent);
  }

 private:
  // The kernels for one token of each state copy whole states.
  Status check_gaps(const Tensor& state) const {
    const int64_t columns = state.extent[2], channels = state.extent[1];
    const bool gaps = (columns > 1 && state.stride[2] != 1) ||
                      (channels > 1 && state.stride[1] != columns) ||
                      (state.extent[0] > 1 && state.stride[0] != columns * channels);
    if (problem_.slots || !gaps || columns * channels == 0) return {};
    return invalid(text("state has strides ", state.stride[0], " and ", state.stride[1],
                        "; allowed without state_indices, for one token of states with W columns, "
                        "are those of a tensor without gaps"));
  }
  ConvShape shape(const Call& call) const {
    const Extents& e = call.extents;
    const int64_t tokens = e[Dim::T] == kUnknown ? 1 : e[Dim::T];
    return {e[Dim::B], tokens, e[Dim::D], problem_.packed ? e[Dim::N] : e[Dim::B]};
  }

  std::unique_ptr<ConvUpdate> update_;
  ConvProblem problem_;
};

}  // namespace

MadeExecutor make_conv_update(const Resolved& resolved, const DeviceFacts& facts) {
  const ConvProblem problem = conv_update_problem(resolved);
  LATHE_ASSIGN(auto update, make_step(conv_updates(), problem, facts));
  return executor_of<ConvUpdateExecutor>(std::move(update), problem);
}

}  // namespace lathe
