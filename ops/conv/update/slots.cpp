// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements causal_conv1d_update over slots of a pool: several tokens, states of any length, other
// slots to read, rings and drafts.
#include "codegen/base/integers.h"
#include "ops/conv/schema.h"
#include "ops/conv/update/step.h"
#include "ops/fill.h"

namespace lathe {
namespace {

constexpr int kThreads = 128;

std::string refusal(const ConvProblem& problem, const DeviceFacts&) {
  return problem.slots ? std::string() : "each row of the states has one token";
}

std::vector<KernelSpec> candidates(const ConvProblem& problem, const DeviceFacts&) {
  KernelSpec spec = KernelSpec::of(
      LATHE_TEMPLATE("conv", "causal_conv1d_update_slots", ConvUpdatePoolParams, reserved),
      kThreads);
  spec.constants = conv_update_slots_constants(problem);
  return {spec};
}

class Slots final : public ConvUpdate {
 public:
  using ConvUpdate::ConvUpdate;

  int64_t blocks(const ConvShape& shape) const override {
    // Rows behind the last packed sequence are one more.
    const int64_t sequences = shape.sequences + (problem().packed ? 1 : 0);
    return ceil_div(shape.channels, kThreads) * sequences;
  }
  Status launch(const Call& call, const ConvShape& shape) const override {
    const ConvUpdatePoolParams p = conv_update_pool_params(problem(), call, shape);
    return kernel.launch(blocks(shape), &p, call.stream);
  }
};

std::unique_ptr<ConvUpdate> make(KernelSpec spec, const ConvProblem& problem, const DeviceFacts&) {
  return std::make_unique<Slots>(std::move(spec), problem);
}

}  // namespace

const ConvUpdateStep kConvUpdateSlots = {"portable", refusal, candidates, {}, make};

std::vector<Constant> conv_update_slots_constants(const ConvProblem& problem) {
  return {Constant::type("x", "Element", problem.x),
          Constant::type("weight", "WeightElement", problem.weight),
          Constant::type("index", "Index", problem.index),
          Constant::type("cu", "Offset", problem.packed ? problem.cu_seqlens : Dtype::i32),
          Constant::integer("width", "kWidth", problem.width),
          Constant::flag("silu", "kSilu", problem.silu),
          Constant::flag("bias", "kBias", problem.bias),
          Constant::flag("residual", "kResidual", problem.residual)};
}

ConvUpdatePoolParams conv_update_pool_params(const ConvProblem& problem, const Call& call,
                                             const ConvShape& shape) {
  using namespace conv_update;
  const auto& t = call.tensors;
  const bool rows = call.extents[Dim::T] == kUnknown;  // one for each sequence, or packed
  const auto strides = [&](const Tensor& tensor, long long* batch, long long* row) {
    *batch = tensor.stride[0], *row = tensor.stride[rows ? 0 : 1];
  };
  ConvUpdatePoolParams pool = {};
  ConvUpdateSlotsParams& p = pool.call;
  p.x = t[x].data, p.weight = t[weight].data, p.bias = t[bias].data;
  p.residual = t[residual].data, p.state = t[state].data, p.y = t[y].data;
  p.cu_seqlens = t[cu_seqlens].data, p.state_indices = t[state_indices].data;
  p.source_indices = t[source_indices].data, p.cache_seqlens = t[cache_seqlens].data;
  p.num_accepted_tokens = t[num_accepted_tokens].data;
  strides(t[x], &p.x_batch_stride, &p.x_row_stride);
  strides(t[residual], &p.residual_batch_stride, &p.residual_row_stride);
  strides(t[y], &p.y_batch_stride, &p.y_row_stride);
  p.state_slot_stride = t[state].stride[0];
  p.state_channel_stride = t[state].stride[1];
  pool.state_column_stride = t[state].stride[2];
  p.sequences = static_cast<int>(shape.sequences);
  p.tokens = static_cast<int>(shape.tokens);
  p.rows = static_cast<int>(call.extents[Dim::B]);
  p.slots = static_cast<int>(call.extents[Dim::S]);
  p.length = static_cast<int>(call.extents[Dim::LS]);
  p.null_slot = problem.null_slot;
  p.update_state = problem.update_state;
  p.channels = static_cast<int>(shape.channels);
  return pool;
}

}  // namespace lathe
