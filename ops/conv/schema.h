// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Lists the tensors and options of the convolutions.
#pragma once

#include <vector>

#include "ops/pool_rows.h"
#include "ops/schema.h"
#include "ops/shapes.h"
#include "templates/params/conv_slots.h"

namespace lathe {

namespace conv {

// y in parts, with the option split.
constexpr std::array<TensorInfo, kConvMostParts> part_rows() {
  constexpr const char* kNames[] = {"y_0", "y_1", "y_2", "y_3", "y_4", "y_5", "y_6", "y_7"};
  constexpr const char* kShapes[] = {"B,T,D0", "B,T,D1", "B,T,D2", "B,T,D3",
                                     "B,T,D4", "B,T,D5", "B,T,D6", "B,T,D7"};
  std::array<TensorInfo, kConvMostParts> rows{};
  for (int i = 0; i < kConvMostParts; ++i) {
    rows[i] = output(kNames[i], kShapes[i], "=x", "With split: a part of the result's channels.")
                  .strided()
                  .cut("split", i);
  }
  return rows;
}

inline constexpr auto kTensors = joined(
    std::array{
        input("x", "B,T,D", kFloats, "The input; its dtype is that of all activations and states.")
            .strided(),
        input("weight", "D,W", kFloats, "Taps, oldest first; W is 2 to 8."),
        input("bias", "D", "=weight", "Added before the activation.").optional(),
        input("residual", "B,T,D", "=x", "Added after the activation.").optional().strided(),
        input("initial_state", "N,D,W", "=x", "The last W inputs before each sequence.").optional(),
        input("cu_seqlens", "N+1", kOffsets, "Offsets of packed sequences; B is then 1.")
            .optional(),
        inout("state_pool", "S,D,LS", "=x",
              "In place of initial_state and final_state: the last W or W - 1 inputs before each "
              "sequence in a slot, changed in place; slots that nobody names are not touched.")
            .needs("state_indices,cu_seqlens")
            .free_columns()
            .aligned(1),
    },
    pool_rows::kOfSequences,
    std::array{
        input("dy", "B,T,D", "=x", "The gradient of y.").optional().strided(),
        input("dfinal_state", "N,D,W", "=x", "The gradient of final_state.").needs("dy"),
        output("y", "B,T,D", "=x", "The result.").strided().cut("split"),
    },
    part_rows(),
    std::array{
        output("final_state", "N,D,W", "=x", "The last W inputs of each sequence."),
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
    });

consteval int at(std::string_view name) { return index_of(kTensors, name); }
inline constexpr int x = at("x"), weight = at("weight"), bias = at("bias"),
                     residual = at("residual"), initial_state = at("initial_state"),
                     cu_seqlens = at("cu_seqlens"), state_pool = at("state_pool"),
                     state_indices = at("state_indices"), source_indices = at("source_indices"),
                     has_initial_state = at("has_initial_state"),
                     cu_checkpoints = at("cu_checkpoints"),
                     checkpoint_tokens = at("checkpoint_tokens"),
                     checkpoint_slots = at("checkpoint_slots"), dy = at("dy"),
                     dfinal_state = at("dfinal_state"), y = at("y"), y_0 = at("y_0"),
                     final_state = at("final_state"), dx = at("dx"), dweight = at("dweight"),
                     dbias = at("dbias"), dinitial_state = at("dinitial_state");

}  // namespace conv

namespace conv_update {

inline constexpr TensorInfo kTensors[] = {
    input("x", "B,T,D|B,D", kFloats,
          "One token for each sequence, or T of them; with cu_seqlens rows of packed sequences.")
        .strided(),
    input("weight", "D,W", kFloats, "Taps, oldest first; W is 2 to 8."),
    input("bias", "D", "=weight", "Added before the activation.").optional(),
    input("residual", "B,T,D|B,D", "=x", "Added after the activation.").optional().strided(),
    inout("state", "S,D,LS", "=x",
          "The last inputs of each sequence, the newest at the right end, rolled in place: W of "
          "them, more, or W - 1.")
        .free_columns()
        .aligned(1),
    input("cu_seqlens", "N+1", kOffsets, "Offsets of packed sequences.").optional(),
    input("state_indices", "N", kOffsets,
          "The slot of state that each sequence writes, and reads; below 0 or null_slot: padding, "
          "whose y is 0. Without it sequence n has slot n.")
        .optional(),
    input("source_indices", "N", "=state_indices",
          "The slot that each sequence reads; padding: zeros before.")
        .needs("state_indices"),
    input("cache_seqlens", "N", "i32",
          "The state is a ring: token t of the call goes to column (cache_seqlens + t) % LS.")
        .optional(),
    input("num_accepted_tokens", "N", "i32",
          "How many tokens of the last call count, at least 1: column W - 2 + j holds token j of "
          "it, and this call's tokens follow those that count.")
        .optional(),
    output("y", "B,T,D|B,D", "=x", "The result, from the rolled state.").required().strided(),
};

consteval int at(std::string_view name) { return index_of(kTensors, name); }
inline constexpr int x = at("x"), weight = at("weight"), bias = at("bias"),
                     residual = at("residual"), state = at("state"), cu_seqlens = at("cu_seqlens"),
                     state_indices = at("state_indices"), source_indices = at("source_indices"),
                     cache_seqlens = at("cache_seqlens"),
                     num_accepted_tokens = at("num_accepted_tokens"), y = at("y");

}  // namespace conv_update

struct ConvOptions {
  enum class Activation { none, silu } activation = Activation::none;
  int64_t null_slot = -1;
  std::vector<int64_t> split;  // of causal_conv1d: the channels of each part of y; none: one
  bool update_state = true;    // of the update
};

}  // namespace lathe
