// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The table of the convolutions.
#include <iterator>

#include "ops/conv/run.h"
#include "ops/entries.h"

namespace lathe {
namespace {

using namespace entries;

const lathe_operator_tensor kConvTensors[] = {
    in("x", "B,T,D", false, kFloats, "The input; its dtype is that of all activations and states."),
    in("weight", "D,W", false, kFloats, "Taps, oldest first; W is 2 to 8."),
    in("bias", "D", true, "=weight", "Added before the activation."),
    in("residual", "B,T,D", true, "=x", "Added after the activation."),
    in("initial_state", "N,D,W", true, "=x", "The last W inputs before each sequence."),
    in("cu_seqlens", "N+1", true, "i32|i64", "Offsets of packed sequences; B is then 1."),
    in("dy", "B,T,D", true, "=x", "The gradient of y."),
    in("dfinal_state", "N,D,W", true, "=x", "The gradient of final_state."),
    out("y", "B,T,D", "=x", "The result."),
    out("final_state", "N,D,W", "=x", "The last W inputs of each sequence."),
    out("dx", "B,T,D", "=x", "The gradient of x."),
    out("dweight", "D,W", "=weight", "The gradient of weight, accumulated in float32."),
    out("dbias", "D", "=weight", "The gradient of bias, accumulated in float32."),
    out("dresidual", "B,T,D", "=x", "The gradient of residual, which is dy itself.", "dy"),
    out("dinitial_state", "N,D,W", "=x", "The gradient of initial_state."),
};
const TensorRules kConvRules[] = {
    {true, ""},                   // x
    {false, ""},                  // weight
    {false, ""},                  // bias
    {true, ""},                   // residual
    {false, ""},                  // initial_state
    {false, ""},                  // cu_seqlens
    {true, ""},                   // dy
    {false, "dy"},                // dfinal_state
    {true, ""},                   // y
    {false, "y"},                 // final_state
    {true, "dy"},                 // dx
    {false, "dy"},                // dweight
    {false, "dweight,bias"},      // dbias
    {true, ""},                   // dresidual
    {false, "dy,initial_state"},  // dinitial_state
};
static_assert(std::size(kConvTensors) == conv::count && std::size(kConvRules) == conv::count);

constexpr lathe_operator_option kActivation = {"activation", LATHE_OPTION_STRING, "none",
                                               "none|silu",
                                               "What is applied to the filter's result."};
const lathe_operator_option kConvOptions[] = {
    kActivation,
    {"output_final_state", LATHE_OPTION_INT, "0", "0|1",
     "Whether final_state is computed; declaring the tensor says the same."},
};

const lathe_operator_tensor kUpdateTensors[] = {
    in("x", "B,D", false, kFloats, "One token for each sequence."),
    in("weight", "D,W", false, kFloats, "Taps, oldest first; W is 2 to 8."),
    in("bias", "D", true, "=weight", "Added before the activation."),
    in("residual", "B,D", true, "=x", "Added after the activation."),
    {"state", "B,D,W", LATHE_INOUT, 0, "=x", nullptr,
     "The last W inputs of each sequence, rolled by one in place."},
    {"y", "B,D", LATHE_OUTPUT, 0, "=x", nullptr, "The result, from the rolled state."},
};
const TensorRules kUpdateRules[] = {
    {true, ""},   // x
    {false, ""},  // weight
    {false, ""},  // bias
    {true, ""},   // residual
    {false, ""},  // state
    {true, ""},   // y
};
static_assert(std::size(kUpdateTensors) == conv_update::count &&
              std::size(kUpdateRules) == conv_update::count);
const lathe_operator_option kUpdateOptions[] = {kActivation};

Result<std::unique_ptr<Executor>> make_conv1d(const lathe_problem& problem, const Extents& promised,
                                              const DeviceFacts& facts) {
  Group* group = problem.group ? problem.group->group.get() : nullptr;
  LATHE_ASSIGN(const ConvProblem conv, conv_problem(problem, promised, group ? group->world() : 1));
  return make_conv(conv, facts, group, problem.group_flags & LATHE_REDUCE_PARAMETER_GRADS);
}

Result<std::unique_ptr<Executor>> make_conv1d_update(const lathe_problem& problem,
                                                     const Extents& promised,
                                                     const DeviceFacts& facts) {
  LATHE_ASSIGN(const ConvProblem conv, conv_problem(problem, promised, 1));
  return make_conv_update(conv, facts);
}

const Operator kOperators[] = {
    {{"causal_conv1d", "Depthwise causal convolution over tokens, forward and backward.",
      kConvTensors, std::size(kConvTensors), kConvOptions, std::size(kConvOptions), 1},
     kConvRules,
     "y,dx,dweight,dinitial_state",
     check_conv,
     make_conv1d,
     Sequences::one_row,
     true},
    {{"causal_conv1d_update", "One step of causal_conv1d for decoding, with its state in place.",
      kUpdateTensors, std::size(kUpdateTensors), kUpdateOptions, std::size(kUpdateOptions), 0},
     kUpdateRules,
     "y",
     check_conv,
     make_conv1d_update},
};

}  // namespace

std::span<const Operator> conv_operators() { return kOperators; }

}  // namespace lathe
