// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Computes grids, buffers and costs of the causal_conv1d kernels from shapes alone.
#include <algorithm>

#include "codegen/base/integers.h"
#include "ops/conv/kernels.h"

namespace lathe {
namespace {

int64_t warps_of(const KernelSpec& spec) { return spec.threads / 32; }

Grid line(int64_t blocks) { return {static_cast<unsigned>(blocks), 1, 1}; }

// Counts the rows read before, or after, the runs of tokens that warps walk, in all rows of the
// batch.
struct ExtraRows {
  uint64_t before = 0, after = 0;
};
ExtraRows extra_rows(const KernelSpec& spec, const ConvShape& shape) {
  const int64_t tokens = conv_tiling(spec, shape).run, reach = spec.constant("width") - 1;
  const int64_t runs = ceil_div(shape.tokens, tokens);
  if (runs == 0) return {};
  const int64_t before = (runs - 1 + spec.constant("halo")) * reach;
  // The last run but one looks ahead only as far as the last one reaches.
  const int64_t after =
      runs < 2 ? 0 : (runs - 2) * reach + std::min(reach, shape.tokens - (runs - 1) * tokens);
  return {static_cast<uint64_t>(shape.batch * before), static_cast<uint64_t>(shape.batch * after)};
}

uint64_t state_bytes(const ConvProblem& problem, const ConvShape& shape) {
  return static_cast<uint64_t>(shape.sequences * shape.channels) * problem.width *
         bytes_of(problem.x);
}

// What states in slots take: each is read and written, and the checkpoints are written. A warp
// reads the rows of a state again, and those of a sequence's first tokens.
void add_slots(const ConvProblem& problem, const ConvShape& shape, uint64_t row, Cost* cost) {
  const auto sequences = static_cast<uint64_t>(shape.sequences);
  const auto checkpoints = static_cast<uint64_t>(shape.checkpoints);
  const auto columns = static_cast<uint64_t>(problem.columns);
  const uint64_t states = (2 * sequences + checkpoints) * columns * row;
  const auto before = static_cast<uint64_t>(problem.width - 1);
  cost->minimum_bytes += states;
  cost->bytes += states + (sequences * (2 * before + columns) + checkpoints * columns) * row;
}

}  // namespace

uint64_t conv_filter_cost(const ConvProblem& problem, const ConvShape& shape) {
  return static_cast<uint64_t>(shape.channels) * (problem.width + (problem.bias ? 1 : 0)) *
         bytes_of(problem.weight);
}

int64_t conv_vector(const KernelSpec& spec) {
  return spec.constant("vector") / bytes_of(static_cast<Dtype>(spec.constant("x")));
}

ConvWalk::ConvWalk(const KernelSpec& spec)
    : tokens(spec.constant("tokens")), channels(32 * conv_vector(spec)), warps(warps_of(spec)) {
  const bool forward = spec.kernel != "causal_conv1d_bwd";
  // Of the forward two rounds of blocks; a run of the backward costs more tokens than it has.
  blocks = forward ? 14 : 1;
  states = spec.constant("states", spec.constant(forward ? "final_state" : "dinitial_state", 0));
  if (!forward) halos = spec.constant("halo");
  by_pieces = spec.constant("pieces", 0) != 0;
}

Grid conv_grid(const ConvTiling& tiling, int64_t batch, int64_t tiles, int64_t state_tiles) {
  return line(int64_t{tiling.columns} * (batch * tiles + state_tiles));
}

Grid conv_weight_grad_grid(const ConvShape& shape) { return line(ceil_div(shape.channels, 32)); }

ConvHaloNumbers::ConvHaloNumbers(const KernelSpec& spec)
    : channels(conv_vector(spec) * spec.threads) {}

Grid conv_halo_grid(const ConvHaloNumbers& kernel, const ConvShape& shape) {
  return line(ceil_div(shape.channels, kernel.channels) * shape.batch);
}

Cost conv_cost(const ConvProblem& problem, const ConvKernels& kernels, const ConvShape& shape) {
  const uint64_t row = static_cast<uint64_t>(shape.channels) * bytes_of(problem.x);
  const uint64_t rows = static_cast<uint64_t>(shape.batch * shape.tokens);
  const uint64_t taps = 2ull * problem.width * rows * shape.channels;  // operations of one filter
  const uint64_t filter = conv_filter_cost(problem, shape), state = state_bytes(problem, shape);
  Cost cost;
  const auto both = [&cost](uint64_t bytes) { cost.minimum_bytes += bytes, cost.bytes += bytes; };
  if (kernels.forward) {
    both((2 + (problem.residual ? 1 : 0)) * rows * row);
    both((problem.initial_state ? state : 0) + (problem.final_state ? state : 0));
    if (problem.pool) add_slots(problem, shape, row, &cost);
    cost.minimum_bytes += filter;
    cost.bytes += extra_rows(*kernels.forward, shape).before * row +
                  filter * shape.batch * conv_tiling(*kernels.forward, shape).tiles;
    cost.flops += taps;
  }
  if (kernels.backward) {
    const bool reads_x = problem.silu || problem.weight_grad;
    ExtraRows extra = extra_rows(*kernels.backward, shape);
    if (!problem.backward) extra.after = 0;  // only dx needs what comes after a run
    const uint64_t tiles = shape.batch * conv_tiling(*kernels.backward, shape).tiles;
    both((1 + (problem.backward ? 1 : 0) + (reads_x ? 1 : 0)) * rows * row);
    both((problem.initial_state ? state : 0) + (problem.dfinal_state ? state : 0) +
         (problem.dinitial_state ? state : 0));
    cost.minimum_bytes += filter;
    cost.bytes += extra.after * row + filter * tiles;
    if (reads_x) cost.bytes += (extra.before + (problem.silu ? extra.after : 0)) * row;
    cost.flops += taps * (1 + (problem.silu ? 1 : 0) + (problem.weight_grad ? 1 : 0));
    if (problem.weight_grad) {
      both(filter);
      // Partials are written once and read once; without a bias their last row is not touched.
      cost.bytes += 2 * tiles * shape.channels * 4 * (problem.width + (problem.bias ? 1 : 0));
    }
  }
  return cost;
}

}  // namespace lathe
