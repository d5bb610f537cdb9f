// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Grids and costs of the KDA kernels: arithmetic on shapes alone.
#include "ops/kda/kernels.h"
#include "templates/params/kda.h"

namespace lathe {
namespace {

int64_t tiles_of_values(const KernelSpec& spec) {
  const KdaRecurrentTile tile = {static_cast<int>(spec.constant("key_lanes")), spec.threads / 32};
  return (spec.constant("v") + tile.columns() - 1) / tile.columns();
}

}  // namespace

int64_t kda_recurrent_blocks(const KernelSpec& spec, const KdaShape& shape) {
  return tiles_of_values(spec) * shape.value_heads * shape.sequences;
}

Grid kda_recurrent_grid(const KernelSpec& spec, const KdaShape& shape) {
  return {static_cast<unsigned>(kda_recurrent_blocks(spec, shape)), 1, 1};
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
  const uint64_t state_bytes = moved * value_heads * k * v * 4;

  Cost cost;
  cost.minimum_bytes = rows * (heads * key_row + value_heads * gate_row) + values + state_bytes;
  const auto tiles = static_cast<uint64_t>(tiles_of_values(spec));
  cost.bytes = rows * value_heads * tiles * (key_row + gate_row) + values + state_bytes;
  // Decay, two sums over K, and the update.
  cost.flops = 7 * rows * value_heads * k * v;
  return cost;
}

}  // namespace lathe
