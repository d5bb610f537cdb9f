// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Lists the tensors and options of the convolutions.
#pragma once

#include "ops/schema.h"
#include "ops/shapes.h"

namespace lathe {

namespace conv {

inline constexpr TensorInfo kTensors[] = {
    input("x", "B,T,D", kFloats, "The input; its dtype is that of all activations and states.")
        .strided(),
    input("weight", "D,W", kFloats, "Taps, oldest first; W is 2 to 8."),
    input("bias", "D", "=weight", "Added before the activation.").optional(),
    input("residual", "B,T,D", "=x", "Added after the activation.").optional().strided(),
    input("initial_state", "N,D,W", "=x", "The last W inputs before each sequence.").optional(),
    input("cu_seqlens", "N+1", kOffsets, "Offsets of packed sequences; B is then 1.").optional(),
    input("dy", "B,T,D", "=x", "The gradient of y.").optional().strided(),
    input("dfinal_state", "N,D,W", "=x", "The gradient of final_state.").needs("dy"),
    output("y", "B,T,D", "=x", "The result.").strided(),
    output("final_state", "N,D,W", "=x", "The last W inputs of each sequence.").needs("y"),
    output("dx", "B,T,D", "=x", "The gradient of x.").needs("dy").strided(),
    output("dweight", "D,W", "=weight", "The gradient of weight, accumulated in float32.")
        .needs("dy"),
    output("dbias", "D", "=weight", "The gradient of bias, accumulated in float32.")
        .needs("dweight,bias"),
    output("dresidual", "B,T,D", "=x",
           "The gradient of residual; 0 in packed rows past the last offset.")
        .alias("dy")
        .strided(),
    output("dinitial_state", "N,D,W", "=x", "The gradient of initial_state.")
        .needs("dy,initial_state"),
};

consteval int at(std::string_view name) { return index_of(kTensors, name); }
inline constexpr int x = at("x"), weight = at("weight"), bias = at("bias"),
                     residual = at("residual"), initial_state = at("initial_state"),
                     cu_seqlens = at("cu_seqlens"), dy = at("dy"),
                     dfinal_state = at("dfinal_state"), y = at("y"),
                     final_state = at("final_state"), dx = at("dx"), dweight = at("dweight"),
                     dbias = at("dbias"), dinitial_state = at("dinitial_state");

}  // namespace conv

namespace conv_update {

inline constexpr TensorInfo kTensors[] = {
    input("x", "B,D", kFloats, "One token for each sequence.").strided(),
    input("weight", "D,W", kFloats, "Taps, oldest first; W is 2 to 8."),
    input("bias", "D", "=weight", "Added before the activation.").optional(),
    input("residual", "B,D", "=x", "Added after the activation.").optional().strided(),
    inout("state", "B,D,W", "=x", "The last W inputs of each sequence, rolled by one in place."),
    output("y", "B,D", "=x", "The result, from the rolled state.").required().strided(),
};

consteval int at(std::string_view name) { return index_of(kTensors, name); }
inline constexpr int x = at("x"), weight = at("weight"), bias = at("bias"),
                     residual = at("residual"), state = at("state"), y = at("y");

}  // namespace conv_update

struct ConvOptions {
  enum class Activation { none, silu } activation = Activation::none;
};

}  // namespace lathe
