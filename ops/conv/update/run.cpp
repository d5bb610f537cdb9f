// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements causal_conv1d_update behind the plan.
#include "ops/conv/run.h"

#include <algorithm>

#include "codegen/base/invalid.h"
#include "ops/conv/update/step.h"

namespace lathe {
namespace {

class ConvUpdateExecutor final : public Executor {
 public:
  explicit ConvUpdateExecutor(std::unique_ptr<ConvUpdate> update) : update_(std::move(update)) {
    list({&update_->kernel});
  }

  Result<size_t> workspace_bytes(const Call&) const override { return size_t{0}; }
  Result<Estimate> estimate(const Call& call) const override {
    return Estimate{1, update_->cost(shape(call))};
  }
  Status run(const Call& call) const override {
    const ConvShape extent = shape(call);
    // A block does at least one sequence of 32 channels: what this refuses no memory holds.
    if ((extent.channels + 31) / 32 > kMaxExtent / std::max<int64_t>(extent.batch, 1)) {
      return unsupported(text("x [", extent.batch, ", ", extent.channels, "] needs more than ",
                              kMaxExtent, " blocks; split the batch"));
    }
    return update_->launch(call, extent);
  }

 private:
  static ConvShape shape(const Call& call) {
    const int64_t batch = call.extents[Dim::B];
    return {batch, 1, call.extents[Dim::D], batch};
  }

  std::unique_ptr<ConvUpdate> update_;
};

}  // namespace

MadeExecutor make_conv_update(const Resolved& resolved, const DeviceFacts& facts) {
  LATHE_ASSIGN(auto update, make_step(conv_updates(), conv_update_problem(resolved), facts));
  return executor_of<ConvUpdateExecutor>(std::move(update));
}

}  // namespace lathe
