// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements causal_conv1d_update with the warps of a block along the channels of one sequence.
#include "codegen/base/integers.h"
#include "ops/conv/update/step.h"

namespace lathe {
namespace {

constexpr int kRowWarps[] = {4, 8, 1};

KernelSpec row_spec(const ConvProblem& problem, int warps) {
  const ConvUpdateShared shared = conv_update_shared(problem);
  KernelSpec spec = conv_update_spec(problem, warps * (shared.filter + shared.slots), warps);
  spec.kernel = "causal_conv1d_update_row";
  spec.source = "conv/causal_conv1d_update_row.cuh";
  spec.smem = "ConvUpdateRowSmem";
  return spec;
}

std::vector<KernelSpec> candidates(const ConvProblem& problem, const DeviceFacts& facts) {
  std::vector<KernelSpec> specs;
  for (const int warps : kRowWarps) {
    KernelSpec spec = row_spec(problem, warps);
    if (spec.smem_bytes <= conv_shared_limit(facts)) specs.push_back(std::move(spec));
  }
  return specs;
}

std::string refusal(const ConvProblem& problem, const DeviceFacts& facts) {
  if (problem.slots) return kOverSlots;
  return conv_shared_refusal("causal_conv1d_update_row", row_spec(problem, 1).smem_bytes, facts);
}

class Row final : public ConvUpdate {
 public:
  using ConvUpdate::ConvUpdate;

  int64_t blocks(const ConvShape& shape) const override {
    const int64_t channels = kernel.numbers().warps * kernel.numbers().channels;
    return ceil_div(shape.channels, channels) * shape.batch;
  }
};

std::unique_ptr<ConvUpdate> make(KernelSpec spec, const ConvProblem& problem, const DeviceFacts&) {
  return std::make_unique<Row>(std::move(spec), problem);
}

}  // namespace

const ConvUpdateStep kConvUpdateRow = {"portable", refusal, candidates, {}, make};

}  // namespace lathe
