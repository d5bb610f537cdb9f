// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Defines the operators causal_conv1d and causal_conv1d_update.
#include "ops/conv/schema.h"

#include "ops/conv/run.h"
#include "ops/options.h"

namespace lathe {
namespace {

constexpr int64_t kMinWidth = 2, kMaxWidth = 8;

constexpr OptionInfo kActivation = Bind<ConvOptions>::word<&ConvOptions::activation>(
    "activation", "none", "none|silu", "The activation after the filter.");
constexpr OptionInfo kConvOptions[] = {
    kActivation,
    output_option("output_final_state",
                  "Whether final_state is computed; declaring the tensor says the same."),
};
constexpr OptionInfo kConvUpdateOptions[] = {kActivation};

Status check_conv(const Resolved& resolved) {
  return check_width("weight", "W", resolved[Dim::W], 1, kMinWidth, kMaxWidth);
}

// Returns the part of a problem that both operators share. The arguments are tensors of the
// operator.
ConvProblem filter_problem(const Resolved& resolved, int x, int weight, int bias, int residual) {
  ConvProblem asked;
  asked.x = resolved.dtype(x);
  asked.weight = resolved.dtype(weight);
  asked.width = static_cast<int>(resolved[Dim::W]);
  asked.vector_bytes = vector_bytes(asked.x, resolved.problem.alignment, resolved[Dim::D]);
  asked.silu = resolved.options_as<ConvOptions>().activation == ConvOptions::Activation::silu;
  asked.bias = resolved.has(bias);
  asked.residual = resolved.has(residual);
  return asked;
}

constexpr Operator kOperators[] = {
    {.name = "causal_conv1d",
     .sentence = "Depthwise causal convolution over tokens, forward and backward.",
     .tensors = conv::kTensors,
     .options = kConvOptions,
     .produces = "y,dx,dweight,dinitial_state",
     .backward = "dy",
     .ranks = true,
     .chain = true,
     .new_options = new_options<ConvOptions>,
     .check = check_conv,
     .make = make_conv},
    {.name = "causal_conv1d_update",
     .sentence = "One step of causal_conv1d for decoding, with its state in place.",
     .tensors = conv_update::kTensors,
     .options = kConvUpdateOptions,
     .produces = "y",
     .new_options = new_options<ConvOptions>,
     .check = check_conv,
     .make = make_conv_update},
};

}  // namespace

std::span<const Operator> conv_operators() { return kOperators; }

ConvProblem conv_problem(const Resolved& resolved, int world) {
  using namespace conv;
  ConvProblem asked = filter_problem(resolved, x, weight, bias, residual);
  asked.initial_state = resolved.has(initial_state);
  asked.packed = resolved.has(cu_seqlens);
  if (asked.packed) asked.cu_seqlens = resolved.dtype(cu_seqlens);
  asked.halo = world > 1;
  asked.forward = resolved.has(y);
  asked.final_state = resolved.has(final_state);
  asked.backward = resolved.has(dx);
  asked.weight_grad = resolved.has(dweight);
  asked.dfinal_state = resolved.has(dfinal_state);
  asked.dinitial_state = resolved.has(dinitial_state);
  return asked;
}

ConvProblem conv_update_problem(const Resolved& resolved) {
  using namespace conv_update;
  ConvProblem asked = filter_problem(resolved, x, weight, bias, residual);
  asked.update = true;
  return asked;
}

}  // namespace lathe
