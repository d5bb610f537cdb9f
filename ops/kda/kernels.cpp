// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Makes specs of the KDA family: which kernels a problem needs and with which constants.
#include "ops/kda/kernels.h"

#include "codegen/base/integers.h"
#include "ops/tiles.h"
#include "templates/params/kda.h"

namespace lathe {
namespace {

// K up to which a quarter of a warp spans it with one block of four rows a lane.
constexpr int kNarrowKeys = 32;
constexpr int kAppendThreads = 128;

int key_lanes_of(const KdaProblem& problem) { return problem.key_dim <= kNarrowKeys ? 8 : 16; }

}  // namespace

int kda_recurrent_smem(const KdaProblem& problem, const KdaRecurrentTile& tile) {
  const int width = round_up(problem.key_dim, 4 * tile.key_lanes);
  return 4 * 2 * tile.warps * (3 * width + tile.columns() + 4);
}

std::vector<KdaRecurrentTile> kda_recurrent_candidates(const KdaProblem& problem,
                                                       const DeviceFacts& facts) {
  const int key_lanes = key_lanes_of(problem);
  std::vector<KdaRecurrentTile> candidates;
  for (const int warps : {4, 8, 2, 1}) {
    const KdaRecurrentTile tile = {key_lanes, warps};
    // No warp without a column, unless there is no smaller block.
    if (warps > 1 && tile.columns() >= 2 * problem.value_dim) continue;
    if (kda_recurrent_smem(problem, tile) > facts.shared_bytes_per_block) continue;
    candidates.push_back(tile);
  }
  return candidates;
}

Result<KdaRecurrentTile> kda_recurrent_choose(const KdaProblem& problem, const DeviceFacts& facts) {
  return choose_tile(
      kda_recurrent_candidates(problem, facts), facts, {},
      [&](const KdaRecurrentTile& tile) { return kda_recurrent_spec(problem, tile); },
      "kda_recurrent: a block",
      [&] {
        return kda_recurrent_smem(problem, {key_lanes_of(problem), 1});
      });
}

KernelSpec kda_ring_append_spec(const KernelSpec& recurrent) {
  KernelSpec spec = KernelSpec::of(
      LATHE_TEMPLATE("kda", "kda_ring_append", KdaRecurrentParams, beta_factor), kAppendThreads);
  spec.constants = recurrent.constants;
  return spec;
}

KernelSpec kda_recurrent_spec(const KdaProblem& problem, const KdaRecurrentTile& tile) {
  const bool pool = problem.states != kKdaStatesPlain;
  KernelSpec spec = shared_spec(
      LATHE_TEMPLATE("kda", "kda_recurrent", KdaRecurrentParams, beta_factor), "KdaRecurrentSmem",
      kda_recurrent_smem(problem, tile), 32 * tile.warps,
      {
          Constant::type("element", "Element", problem.element),
          Constant::type("g", "GateElement", problem.gate),
          Constant::type("beta", "BetaElement", problem.beta),
          // Types of what is not there change nothing: one word for all.
          Constant::type("cu", "Offset", problem.packed ? problem.cu_seqlens : Dtype::i32),
          Constant::type("index", "Index", pool ? problem.index : Dtype::i32),
          Constant::integer("k", "kKeyDim", problem.key_dim),
          Constant::integer("v", "kValueDim", problem.value_dim),
          Constant::integer("key_lanes", "kKeyLanes", tile.key_lanes),
          Constant::integer("states", "kStates", problem.states),
          Constant::integer("gate", "kGate", problem.gate_kind),
          Constant::flag("A_log", "kAlog", problem.A_log),
          Constant::flag("dt_bias", "kDtBias", problem.dt_bias),
          Constant::flag("sigmoid", "kSigmoid", problem.sigmoid),
          Constant::flag("l2norm", "kL2Norm", problem.l2norm),
          Constant::flag("v_first", "kStateVFirst", problem.state_v_first),
          Constant::flag("packed", "kPacked", problem.packed),
      });
  if (problem.states == kKdaStatesRings) {
    spec.add({Constant::type("ring", "RingElement", problem.ring)});
  }
  // A pool of another type than float32, which states of calls always have.
  if (pool && problem.pooled != Dtype::f32) {
    spec.add({Constant::type("pool", "PoolElement", problem.pooled)});
  }
  add_alignment(problem.alignment, &spec);
  return spec;
}

Result<KernelSpec> kda_recurrent_kernel(const KdaProblem& problem, const DeviceFacts& facts) {
  LATHE_ASSIGN(const KdaRecurrentTile tile, kda_recurrent_choose(problem, facts));
  return kda_recurrent_spec(problem, tile);
}

// Grids and costs follow from shapes alone.
namespace {

int64_t tiles_of_values(const KdaRecurrentNumbers& kernel) {
  const KdaRecurrentTile tile = {static_cast<int>(kernel.key_lanes),
                                 static_cast<int>(kernel.threads / 32)};
  return ceil_div(kernel.v, tile.columns());
}

}  // namespace

int64_t kda_recurrent_blocks(const KdaRecurrentNumbers& kernel, const KdaShape& shape) {
  return tiles_of_values(kernel) * shape.value_heads * shape.sequences;
}

Cost kda_recurrent_cost(const KdaProblem& problem, const KernelSpec& spec, const KdaShape& shape,
                        const KdaStateTraffic& states) {
  const auto rows = static_cast<uint64_t>(shape.rows);
  const auto heads = static_cast<uint64_t>(shape.heads);
  const auto value_heads = static_cast<uint64_t>(shape.value_heads);
  const auto sequences = static_cast<uint64_t>(shape.sequences);
  const auto k = static_cast<uint64_t>(problem.key_dim),
             v = static_cast<uint64_t>(problem.value_dim);
  const uint64_t key_row = 2 * k * bytes_of(problem.element);  // of q and k
  const uint64_t gate_row = k * bytes_of(problem.gate) + bytes_of(problem.beta);
  const uint64_t values = 2 * rows * value_heads * v * bytes_of(problem.element);  // v and o

  // States of all value heads that are read and written.
  uint64_t moved = (states.initial ? sequences : 0) + (states.final ? sequences : 0);
  if (problem.states == kKdaStatesPool) moved = 2 * sequences;
  if (problem.states == kKdaStatesColumns) moved = sequences + rows;
  if (problem.states == kKdaStatesRings) moved = sequences;
  const Dtype stored = problem.states == kKdaStatesPlain ? Dtype::f32 : problem.pooled;
  uint64_t state_bytes = moved * value_heads * k * v * bytes_of(stored);
  if (problem.states == kKdaStatesRings) {
    // The records of the call; how many others there are is on the device.
    state_bytes += rows * (heads * k * bytes_of(problem.element) +
                           value_heads * (4 * k + v * bytes_of(problem.ring)));
  }

  Cost cost;
  cost.minimum_bytes = rows * (heads * key_row + value_heads * gate_row) + values + state_bytes;
  const auto tiles = static_cast<uint64_t>(tiles_of_values(spec));
  cost.bytes = rows * value_heads * tiles * (key_row + gate_row) + values + state_bytes;
  // Decay, two sums over K, and the update.
  cost.flops = 7 * rows * value_heads * k * v;
  return cost;
}

}  // namespace lathe
