// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Makes specs of the sparse attention family: which kernels a problem needs and with which
// constants.
#include "ops/sparse/kernels.h"

#include "codegen/base/integers.h"
#include "ops/shapes.h"
#include "ops/tiles.h"
#include "ops/workspace.h"
#include "templates/params/sparse_attention.h"
#include "templates/params/sparse_ranks.h"

namespace lathe {
namespace {

constexpr int kMostHeads = 64;
constexpr int kElementBytes = 2;
constexpr int kByteRowsNarrow = 3;  // kByteRows of templates/attention/decode/narrow_rows.cuh
constexpr int kWarpValues = 256;    // columns of v that a warp has in registers
constexpr int kCombineThreads = 128;
constexpr int kLeastKeysOfThree = 32;  // of a step: the list's ring has room for no more tiles
constexpr int kReservedShared = 1024;  // of each block, by the system
// A thread has at most this many registers for out and the scores with their 16-bit copy; found by
// trial.
constexpr int kMostAccumulators = 152;

int accumulators(const SparseProblem& problem, const SparseTile& tile) {
  const int out = sparse_padded_width(problem.value_dim) / tile.groups / 2;
  const int scores = tile.keys / 2;
  return out + scores + scores / 2;
}

bool fits(const SparseProblem& problem, const SparseTile& tile, const DeviceFacts& facts) {
  return sparse_forward_smem(problem, tile) <= facts.shared_bytes_per_block &&
         accumulators(problem, tile) <= kMostAccumulators;
}

// Returns the warps for each 16 heads: as few as possible, but at least four in a block, and none
// with more columns of v than it has registers for. A warp takes columns of v in turns of 32.
int groups_for(const SparseProblem& problem, int heads) {
  const int values = sparse_padded_width(problem.value_dim);
  int groups = 1;
  while (groups < 4 && (values / groups > kWarpValues || heads / 16 * groups < 4)) groups *= 2;
  while (groups > 1 && values % (32 * groups) != 0) groups /= 2;
  return groups;
}

// Returns whether a tile takes a third stage: if that does not cost the second block of a
// multiprocessor.
bool takes_third(const SparseProblem& problem, const SparseTile& two, const DeviceFacts& facts) {
  SparseTile three = two;
  three.stages = 3;
  const auto twice = [&](const SparseTile& tile) {
    return 2 * (sparse_forward_smem(problem, tile) + kReservedShared) <=
           facts.shared_bytes_per_multiprocessor;
  };
  return two.keys >= kLeastKeysOfThree && fits(problem, three, facts) && twice(three) == twice(two);
}

}  // namespace

int sparse_padded_width(int width) { return round_up(width, 64); }

int sparse_head_rows(int group, int most) {
  if (group <= 0) return most;
  const int tiles = (group + most - 1) / most;
  return round_up((group + tiles - 1) / tiles, 16);
}

int sparse_forward_smem(const SparseProblem& problem, const SparseTile& tile) {
  const int width = sparse_padded_width(problem.head_dim + problem.rope_dim);
  const int values = problem.values_in_keys ? 0 : sparse_padded_width(problem.value_dim);
  const int scores = tile.groups > 1 ? tile.warps() * 16 * tile.keys * 4 : 0;
  const int list = round_up(4 * 4 * tile.keys + 16, 128);
  if (problem.byte_rows) {
    return kElementBytes * (tile.heads + tile.keys) * width + scores + list +
           tile.stages * tile.keys * static_cast<int>(kByteRow);
  }
  return kElementBytes * (tile.heads * width + tile.stages * tile.keys * (width + values)) +
         scores + list;
}

// The order is by heads first, which decide how often keys are read; then by keys of a step, then
// by stages.
std::vector<SparseTile> sparse_candidates(const SparseProblem& problem, const DeviceFacts& facts) {
  std::vector<SparseTile> candidates;
  for (const int most : {kMostHeads, 48, 32, 16}) {
    const int heads = sparse_head_rows(problem.group, most);
    for (const int keys : {64, 32, 16}) {
      SparseTile tile = {heads, keys, groups_for(problem, heads)};
      if (takes_third(problem, tile, facts)) tile.stages = 3;
      const bool seen = std::find(candidates.begin(), candidates.end(), tile) != candidates.end();
      if (!seen && fits(problem, tile, facts)) candidates.push_back(tile);
    }
  }
  return candidates;
}

Result<SparseTile> sparse_choose(const SparseProblem& problem, const DeviceFacts& facts) {
  return choose_tile(
      sparse_candidates(problem, facts), facts, {"m", "n", "groups", "stages"},
      [&](const SparseTile& tile) { return sparse_forward_spec(problem, tile); },
      "sparse_flash_attention: a block",
      [&] {
        return sparse_forward_smem(problem, {16, 16, groups_for(problem, 16)});
      });
}

KernelSpec sparse_forward_spec(const SparseProblem& problem, const SparseTile& tile) {
  KernelSpec spec = shared_spec(
      LATHE_TEMPLATE("sparse", "sparse_forward", SparseForwardParams, splits), "SparseForwardSmem",
      sparse_forward_smem(problem, tile), 32 * tile.warps(),
      {
          Constant::type("element", "Element", problem.element),
          // Without packed lengths the type of the offsets changes nothing: one word for all.
          Constant::type("cu", "Offset", problem.packed ? problem.cu_seqlens : Dtype::i32),
          Constant::type("out", "Out", problem.float_out ? Dtype::f32 : problem.element),
          Constant::integer("width", "kWidth",
                            sparse_padded_width(problem.head_dim + problem.rope_dim)),
          Constant::integer("value_width", "kValueWidth", sparse_padded_width(problem.value_dim)),
          Constant::integer("m", "kTileM", tile.heads),
          Constant::integer("n", "kTileN", tile.keys),
          Constant::integer("groups", "kGroups", tile.groups),
          Constant::integer("stages", "kStages", tile.stages),
          Constant::flag("packed", "kPacked", problem.packed),
          Constant::flag("sinks", "kSinks", problem.sinks),
          Constant::flag("values_in_keys", "kValuesInKeys", problem.values_in_keys),
      });
  if (problem.extra) spec.add({Constant::flag("extra", "kExtra", true)});
  if (problem.byte_rows) {
    spec.add({Constant::integer("narrow", "kNarrow", kByteRowsNarrow)});
  }
  return spec;
}

KernelSpec sparse_combine_spec(const SparseProblem& problem) {
  return KernelSpec::of(
      LATHE_TEMPLATE("sparse", "sparse_combine", SparseCombineParams, splits), kCombineThreads,
      {Constant::type("out", "Out", problem.float_out ? Dtype::f32 : problem.element),
       Constant::flag("sinks", "kSinks", problem.sinks)});
}

Result<SparseKernels> sparse_kernels(const SparseProblem& problem, const DeviceFacts& facts) {
  SparseKernels kernels;
  if (!problem.forward) return kernels;
  LATHE_ASSIGN(const SparseTile tile, sparse_choose(problem, facts));
  kernels.forward = sparse_forward_spec(problem, tile);
  if (problem.split) kernels.combine = sparse_combine_spec(problem);
  return kernels;
}

// Grids, splits, the workspace and costs follow from shapes alone.
namespace {

constexpr int64_t kFloatBytes = 4, kIndexBytes = 4;
// A part of a list must pay for its block and for its partial result: at least so many steps.
constexpr int64_t kLeastSteps = 4;

}  // namespace

int64_t sparse_head_tiles(const SparseTiling& kernel, const SparseShape& shape) {
  return ceil_div(shape.group(), kernel.heads);
}

int64_t sparse_forward_blocks(const SparseTiling& kernel, const SparseShape& shape,
                              int64_t splits) {
  return shape.rows() * shape.kv_heads * sparse_head_tiles(kernel, shape) * splits;
}

int64_t sparse_combine_blocks(const KernelSpec& spec, const SparseShape& shape) {
  return ceil_div(shape.rows() * shape.heads, spec.threads / 32);
}

int64_t sparse_splits(const SparseProblem& problem, const SparseTiling& kernel,
                      const SparseShape& shape, int64_t multiprocessors, int64_t wanted) {
  if (!problem.split || wanted == 1) return 1;
  const int64_t steps = ceil_div(shape.listed(), kernel.keys);
  const int64_t most = std::clamp<int64_t>(steps, 1, kMostSparseSplits);
  if (wanted > 0) return std::min(wanted, most);
  const int64_t blocks = sparse_forward_blocks(kernel, shape, 1);
  if (blocks <= 0) return 1;
  return std::clamp<int64_t>(multiprocessors / blocks, 1,
                             std::clamp<int64_t>(steps / kLeastSteps, 1, most));
}

SparsePartials sparse_partials(const SparseProblem& problem, const SparseShape& shape,
                               int64_t splits) {
  SparsePartials out;
  if (splits <= 1) return out;
  const int64_t rows = splits * shape.rows() * shape.heads;
  WorkspaceLayout layout;
  out.out = layout.add({rows, problem.value_dim, kFloatBytes});
  out.maxima = layout.add({rows, kFloatBytes});
  out.sums = layout.add({rows, kFloatBytes});
  out.total = layout.total();
  return out;
}

// The share is that of dense attention, whose tiles share keys too: FlashAttention-3's scheduler
// groups heads by 32 MiB on a device of 50 MiB.
int64_t sparse_cached_bytes(const DeviceFacts& facts) { return int64_t{facts.l2_bytes} * 16 / 25; }

Cost sparse_forward_cost(const SparseProblem& problem, const KernelSpec& spec,
                         const SparseShape& shape, int64_t splits, int64_t cached) {
  const int64_t width = problem.head_dim + problem.rope_dim, values = problem.value_dim;
  const int64_t rows = shape.rows(), key_width = width + (problem.values_in_keys ? 0 : values);
  const int64_t listed = rows * shape.kv_heads * shape.listed();
  const int64_t keys = shape.sequences * shape.seq_k * shape.kv_heads;
  const int64_t own = rows * shape.heads * ((width + values) * kElementBytes + 3 * kFloatBytes) +
                      rows * shape.kv_heads * shape.topk * kIndexBytes;
  Cost cost;
  cost.minimum_bytes =
      static_cast<uint64_t>(own + std::min(listed, keys) * key_width * kElementBytes);
  const int64_t tiles = sparse_head_tiles(spec, shape);
  const int64_t partial =
      splits > 1 ? 2 * splits * rows * shape.heads * (values + 2) * kFloatBytes : 0;
  const bool kept = keys * key_width * kElementBytes <= cached;
  const int64_t gathered = kept ? std::min(listed, keys) : listed * tiles;
  cost.bytes = static_cast<uint64_t>(own + gathered * key_width * kElementBytes + partial);
  cost.flops = static_cast<uint64_t>(2 * listed * shape.group() * (width + values));
  const int64_t steps = splits * ceil_div(ceil_div(shape.listed(), splits), spec.constant("n"));
  cost.tensor_ops = static_cast<uint64_t>(2 * rows * shape.kv_heads * tiles * spec.constant("m") *
                                          steps * spec.constant("n") *
                                          (spec.constant("width") + spec.constant("value_width")));
  return cost;
}

namespace {

constexpr int kThreads = 256;
constexpr int64_t kColumnsOfThread = 8;

}  // namespace

KernelSpec sparse_join_spec(Dtype element, Dtype part, bool exact) {
  KernelSpec spec = KernelSpec::of(
      LATHE_TEMPLATE("sparse", "sparse_gradient_join", SparseJoinParams, rank), kThreads,
      {Constant::type("element", "Element", element), Constant::type("part", "Part", part)});
  if (exact) spec.add({Constant::flag("exact", "kExact", true)});
  return spec;
}

int64_t sparse_join_blocks(const KernelSpec& spec, int64_t rows, int64_t width) {
  return ceil_div(rows * (width / kColumnsOfThread), spec.threads);
}
int64_t sparse_join_sinks_blocks(const KernelSpec& spec, int64_t heads) {
  return ceil_div(heads, spec.threads);
}

}  // namespace lathe
