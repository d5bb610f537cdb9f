// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Defines the operators causal_conv1d and causal_conv1d_update.
#include "ops/conv/schema.h"

#include <algorithm>
#include <numeric>

#include "ops/conv/run.h"
#include "ops/options.h"

namespace lathe {
namespace {

constexpr int64_t kMinWidth = 2, kMaxWidth = 8;

constexpr OptionInfo kActivation = Bind<ConvOptions>::word<&ConvOptions::activation>(
    "activation", "none", "none|silu", "The activation after the filter.");
constexpr auto kConvOptions =
    joined(std::array{kActivation,
                      output_option("output_final_state",
                                    "Whether final_state is computed; declaring the tensor says "
                                    "the same.")},
           pool_rows::kNullSlot<ConvOptions>,
           std::array{Bind<ConvOptions>::list<&ConvOptions::split>(
               "split",
               "Channels of each of up to 8 results y_0, y_1, ... in place of y, such as "
               "16,16,32.")});
constexpr auto kConvUpdateOptions =
    joined(std::array{kActivation}, pool_rows::kNullSlot<ConvOptions>,
           std::array{Bind<ConvOptions>::flag<&ConvOptions::update_state>(
               "update_state", "0: state is only read, and comes out as it went in.", "1|0")});

Status check_taps(const Resolved& resolved) {
  return check_width("weight", "W", resolved[Dim::W], 1, kMinWidth, kMaxWidth);
}
Status check_conv(const Resolved& resolved) {
  LATHE_TRY(check_taps(resolved));
  return check_conv_slots(resolved);
}
Status check_conv_widths(const Resolved& resolved) {
  LATHE_TRY(check_taps(resolved));
  return check_conv_update(resolved);
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
     .produces = "y,y_0,dx,dweight,dinitial_state",
     .backward = "dy",
     .ranks = true,
     .chain = true,
     .new_options = new_options<ConvOptions>,
     .check = check_conv,
     .make = make_conv,
     .derive = derive_conv,
     .check_values = check_conv_values},
    {.name = "causal_conv1d_update",
     .sentence = "One step of causal_conv1d for decoding, with its state in place.",
     .tensors = conv_update::kTensors,
     .options = kConvUpdateOptions,
     .produces = "y",
     .sequences = Sequences::apart,
     .new_options = new_options<ConvOptions>,
     .check = check_conv_widths,
     .make = make_conv_update,
     .check_values = check_conv_update_values},
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
  asked.forward = resolved.has(y) || resolved.has(y_0);
  asked.final_state = resolved.has(final_state);
  asked.backward = resolved.has(dx);
  asked.weight_grad = resolved.has(dweight);
  asked.dfinal_state = resolved.has(dfinal_state);
  asked.dinitial_state = resolved.has(dinitial_state);
  const auto& options = resolved.options_as<ConvOptions>();
  asked.parts = static_cast<int>(options.split.size());
  // A thread's channels lie in one part.
  int64_t common = resolved[Dim::D];
  for (const int64_t width : options.split) common = std::gcd(common, width);
  if (asked.parts > 0) {
    asked.vector_bytes = vector_bytes(asked.x, resolved.problem.alignment, common);
    std::copy(options.split.begin(), options.split.end(), asked.widths.begin());
  }
  if (!resolved.has(state_pool)) return asked;
  asked.pool = true;
  asked.checkpoints = resolved.has(cu_checkpoints);
  asked.columns = static_cast<int>(resolved[Dim::LS]);
  asked.index = resolved.dtype(state_indices);
  asked.null_slot = static_cast<int>(options.null_slot);
  return asked;
}

ConvProblem conv_update_problem(const Resolved& resolved) {
  using namespace conv_update;
  ConvProblem asked = filter_problem(resolved, x, weight, bias, residual);
  const auto& options = resolved.options_as<ConvOptions>();
  asked.update = true;
  asked.packed = resolved.has(cu_seqlens);
  if (asked.packed) asked.cu_seqlens = resolved.dtype(cu_seqlens);
  asked.indexed = resolved.has(state_indices);
  if (asked.indexed) asked.index = resolved.dtype(state_indices);
  asked.ring = resolved.has(cache_seqlens);
  asked.drafts = resolved.has(num_accepted_tokens);
  asked.columns = static_cast<int>(resolved[Dim::LS]);
  asked.null_slot = static_cast<int>(options.null_slot);
  asked.update_state = options.update_state;
  asked.several = asked.packed || resolved.problem.tensors[x].shape.rank == 3;
  asked.slots = asked.several || asked.indexed || asked.ring || asked.drafts ||
                asked.columns != asked.width || !asked.update_state;
  return asked;
}

}  // namespace lathe
