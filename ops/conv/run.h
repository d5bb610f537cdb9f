// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements causal_conv1d behind the plan: a call becomes parameters, launches and messages.
#pragma once

#include <algorithm>

#include "ops/conv/kernels.h"
#include "ops/conv/schema.h"
#include "ops/executor.h"
#include "ops/fill.h"
#include "ops/slot_values.h"

namespace lathe {

// Says where a rank's shard lies, and the shape that the kernels' geometry depends on.
struct ConvPart {
  int64_t length = 0, begin = 0, end = 0;
  ConvShape shape;
};

// These are of other ranks, or of the workspace.
template <>
inline constexpr auto kOtherPointers<conv::kTensors, ConvForwardParams> =
    std::tuple(&ConvForwardParams::halo);
template <>
inline constexpr auto kOtherPointers<conv::kTensors, ConvBackwardParams> = std::tuple(
    &ConvBackwardParams::halo, &ConvBackwardParams::dhalo, &ConvBackwardParams::partials);
template <>
inline constexpr auto kOtherPointers<conv::kTensors, ConvHaloPackParams> =
    std::tuple(&ConvHaloPackParams::rows);
template <>
inline constexpr auto kOtherPointers<conv::kTensors, ConvHaloJoinParams> =
    std::tuple(&ConvHaloJoinParams::messages, &ConvHaloJoinParams::halo);
template <>
inline constexpr auto kOtherPointers<conv::kTensors, ConvHaloAddParams> =
    std::tuple(&ConvHaloAddParams::messages);

// Returns parameters with all tensors that they have, and with where the shard lies.
template <typename Params>
Params conv_params(const Call& call, const ConvPart& part) {
  Params p = {};
  fill_tensors<conv::kTensors>(call, false, &p);
  fill_numbers(part.shape, &p);
  p.length = static_cast<int>(part.length);
  p.begin = static_cast<int>(part.begin);
  if constexpr (requires { p.end; }) p.end = static_cast<int>(part.end);
  return p;
}

// Launches token tiles [first, first + tiles) of a shard and its state tiles; nothing if there are
// neither.
template <typename Params>
Status launch_tiles(const NumberedSlot<ConvWalk>& kernel, const ConvTiling& tiling, Params p,
                    int first, int tiles, int state_tiles, CUstream stream) {
  p.first_tile = first;
  p.tiles = std::max(tiles, 0);
  p.state_tiles = state_tiles;
  if (p.tiles == 0 && p.state_tiles == 0) return {};
  return kernel.launch(conv_grid(tiling, p.batch, p.tiles, p.state_tiles), &p, stream);
}

// Holds the offsets of the workspace's sections. A section that a call does not use has no bytes.
struct ConvWorkspace {
  int64_t partials = 0;  // float32 [B * tiles, W + 1, D]
  int64_t sums = 0;      // float32 [W + 1, D], all-reduced over the ranks
  int64_t total = 0;
};

struct ConvPlan {
  ConvPart part;
  ConvTiling forward, backward;
  ConvWorkspace workspace;

  int64_t total() const { return workspace.total; }
};

class ConvExecutor final : public PlannedExecutor<ConvExecutor, ConvPlan> {
 public:
  // `group`: gradients of weights are summed over its ranks; null: they are this rank's.
  ConvExecutor(const ConvProblem& problem, ConvKernels kernels, Group* group, int multiprocessors);

  Result<ConvPlan> plan(const Call& call) const;
  Status launch(const Call& call, const ConvPlan& plan) const;
  Result<Estimate> estimate_plan(const Call& call, const ConvPlan& plan) const;

  // A rank among several runs these parts.
  ConvForwardParams forward_params(const Call& call, const ConvPlan& plan) const;
  ConvBackwardParams backward_params(const Call& call, const ConvPlan& plan) const;
  // Launches token tiles [first, first + tiles) of a shard and its state tiles.
  Status launch_forward(const ConvForwardParams& p, const ConvPlan& plan, int first, int tiles,
                        int state_tiles, CUstream stream) const {
    return launch_tiles(kernels_.forward, plan.forward, p, first, tiles, state_tiles, stream);
  }
  Status launch_backward(const ConvBackwardParams& p, const ConvPlan& plan, int first, int tiles,
                         int state_tiles, CUstream stream) const {
    return launch_tiles(kernels_.backward, plan.backward, p, first, tiles, state_tiles, stream);
  }
  Status weight_grad(const Call& call, const ConvPlan& plan) const;
  // Launches the forward over slots of a pool, or into parts of the result (slots.cpp).
  Status launch_slots(const Call& call, const ConvPlan& plan) const;

  // Gradients of weights from one row of sums, float32 [W + 1, D].
  Status give_weight_grad(const Call& call, const ConvPlan& plan, const void* sums) const;

  const ConvProblem& problem() const { return problem_; }
  const ConvKernels& kernels() const { return kernels_; }

 private:
  const ConvWalk& forward() const { return kernels_.forward.numbers(); }
  const ConvWalk& backward() const { return kernels_.backward.numbers(); }

  ConvProblem problem_;
  ConvKernels kernels_;
  Group* group_;
  int multiprocessors_;
};

// These return the integers and flags that kernels are chosen by.
ConvProblem conv_problem(const Resolved& resolved, int world);
ConvProblem conv_update_problem(const Resolved& resolved);

// These check what causal_conv1d has beyond the tables, states in slots and a result in parts: what
// is declared, and the slots that it reads on the device. The third sets the parts' extents.
Status check_conv_slots(const Resolved& resolved);
Status check_conv_values(const Values& values);
void derive_conv(const lathe_problem& problem, Extents* extents);

// These check what causal_conv1d_update has beyond the tables: what is declared, what a call
// brings, and the slots and counts that it reads on the device.
Status check_conv_update(const Resolved& resolved);
Status check_conv_update_extents(const ConvProblem& problem, const Extents& extents);
Status check_conv_update_values(const Values& values);

// Chooses kernels; compiles nothing.
MadeExecutor make_conv(const Resolved& resolved, const DeviceFacts& facts);
MadeExecutor make_conv_update(const Resolved& resolved, const DeviceFacts& facts);

}  // namespace lathe
