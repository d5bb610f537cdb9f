// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements causal_conv1d_update with the warps of a block along the batch, which share one staged
// filter, and what the step's implementations have in common.
#include <algorithm>

#include "codegen/base/integers.h"
#include "ops/conv/schema.h"
#include "ops/conv/update/step.h"
#include "ops/fill.h"

namespace lathe {
namespace {

// So many sequences of each warp are in flight; they share the filter. Few of them suffice where a
// run of slots is long.
constexpr int kWarps = 8, kMostRows = 4;
constexpr int kWarpBytesUnderWay = 2048;
constexpr int kBlocks = 4;  // of a multiprocessor, that registers are left for

class Sequences final : public ConvUpdate {
 public:
  using ConvUpdate::ConvUpdate;

  int64_t blocks(const ConvShape& shape) const override {
    return ceil_div(shape.channels, kernel.numbers().channels) *
           ceil_div(shape.batch, kernel.numbers().sequences);
  }
};

KernelSpec sequences_spec(const ConvProblem& problem) {
  const ConvUpdateShared shared = conv_update_shared(problem);
  const int rows = std::clamp(kWarpBytesUnderWay / shared.slots, 1, kMostRows);
  KernelSpec spec = conv_update_spec(problem, shared.filter + kWarps * rows * shared.slots, kWarps);
  spec.add({Constant::integer("rows", "kRows", rows)});
  spec.min_blocks = kBlocks;
  return spec;
}

std::string refusal(const ConvProblem& problem, const DeviceFacts& facts) {
  if (problem.slots) return kOverSlots;
  return conv_shared_refusal("causal_conv1d_update", sequences_spec(problem).smem_bytes, facts);
}

std::vector<KernelSpec> candidates(const ConvProblem& problem, const DeviceFacts&) {
  return {sequences_spec(problem)};
}

std::unique_ptr<ConvUpdate> make(KernelSpec spec, const ConvProblem& problem, const DeviceFacts&) {
  return std::make_unique<Sequences>(std::move(spec), problem);
}

}  // namespace

const ConvUpdateStep kConvUpdateSequences = {"portable", refusal, candidates, {}, make};

KernelSpec conv_update_spec(const ConvProblem& problem, int smem_bytes, int warps) {
  return shared_spec(
      LATHE_TEMPLATE("conv", "causal_conv1d_update", ConvUpdateParams, channels), "ConvUpdateSmem",
      smem_bytes, 32 * warps,
      {Constant::type("x", "Element", problem.x),
       Constant::type("weight", "WeightElement", problem.weight),
       Constant::integer("width", "kWidth", problem.width),
       Constant::integer("vector", "kVectorBytes", conv_update_vector(problem)),
       Constant::flag("silu", "kSilu", problem.silu), Constant::flag("bias", "kBias", problem.bias),
       Constant::flag("residual", "kResidual", problem.residual)});
}

ConvUpdateNumbers::ConvUpdateNumbers(const KernelSpec& spec)
    : channels(32 * spec.constant("vector", 0) / bytes_of(static_cast<Dtype>(spec.constant("x")))),
      warps(spec.threads / 32),
      rows(spec.constant("rows", 1)),
      sequences(warps * rows) {}

int conv_update_vector(const ConvProblem& problem) {
  return std::min(problem.vector_bytes, 2 * bytes_of(problem.x));
}

ConvUpdateShared conv_update_shared(const ConvProblem& problem) {
  const int vector = conv_update_vector(problem);
  return {conv_filter_bytes(problem, vector), 32 * vector * problem.width};
}

Status ConvUpdate::launch(const Call& call, const ConvShape& shape) const {
  const auto& t = call.tensors;
  ConvUpdateParams p = {};
  fill_tensors<conv_update::kTensors>(call, false, &p);
  p.x_stride = t[conv_update::x].stride[0];
  p.residual_stride = t[conv_update::residual].stride[0];
  p.y_stride = t[conv_update::y].stride[0];
  p.state_stride = t[conv_update::state].stride[0];
  p.batch = static_cast<int>(shape.batch);
  p.channels = static_cast<int>(shape.channels);
  return kernel.launch(blocks(shape), &p, call.stream);
}

// Rows of channels that are read from states and written to them.
uint64_t ConvUpdate::state_rows(uint64_t sequences, uint64_t tokens) const {
  if (!problem_.slots) return 2 * problem_.width * sequences;
  const uint64_t before = (problem_.width - 1) * sequences;
  if (!problem_.update_state) return before;
  if (problem_.ring || problem_.drafts) return before + tokens;
  return 2 * problem_.columns * sequences;
}

Cost ConvUpdate::cost(const ConvShape& shape) const {
  const auto sequences = static_cast<uint64_t>(shape.sequences);
  const auto rows = static_cast<uint64_t>(shape.batch * shape.tokens);
  const uint64_t row = static_cast<uint64_t>(shape.channels) * bytes_of(problem_.x);
  const uint64_t filter = conv_filter_cost(problem_, shape);
  Cost cost;
  cost.bytes = ((2 + (problem_.residual ? 1 : 0)) * rows + state_rows(sequences, rows)) * row;
  cost.minimum_bytes = cost.bytes + filter;
  // Sequences of a block share a filter: it is read as often as blocks lie along the batch.
  ConvShape one = shape;
  one.batch = one.sequences = 1;
  if (shape.channels > 0) cost.bytes += filter * static_cast<uint64_t>(blocks(shape) / blocks(one));
  cost.flops = 2ull * problem_.width * rows * static_cast<uint64_t>(shape.channels);
  return cost;
}

}  // namespace lathe
