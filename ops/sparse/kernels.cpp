// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Computes grids, splits, workspace and costs of sparse attention, and makes the specs of the
// kernels that have one implementation alone.
#include "ops/sparse/kernels.h"

#include "codegen/base/integers.h"
#include "ops/shapes.h"
#include "ops/workspace.h"
#include "templates/params/sparse_attention.h"
#include "templates/params/sparse_ranks.h"

namespace lathe {
namespace {

constexpr int kElementBytes = 2;
constexpr int kCombineThreads = 128;

}  // namespace

int sparse_padded_width(int width) { return round_up(width, 64); }

KernelSpec sparse_combine_spec(const SparseProblem& problem) {
  return KernelSpec::of(
      LATHE_TEMPLATE("sparse", "sparse_combine", SparseCombineParams, splits), kCombineThreads,
      {Constant::type("out", "Out", problem.float_out ? Dtype::f32 : problem.element),
       Constant::flag("sinks", "kSinks", problem.sinks)});
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

Cost sparse_forward_cost(const SparseProblem& problem, const SparseTiling& kernel,
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
  const int64_t tiles = sparse_head_tiles(kernel, shape);
  const int64_t partial =
      splits > 1 ? 2 * splits * rows * shape.heads * (values + 2) * kFloatBytes : 0;
  const bool kept = keys * key_width * kElementBytes <= cached;
  const int64_t gathered = kept ? std::min(listed, keys) : listed * tiles;
  cost.bytes = static_cast<uint64_t>(own + gathered * key_width * kElementBytes + partial);
  cost.flops = static_cast<uint64_t>(2 * listed * shape.group() * (width + values));
  const int64_t steps = splits * ceil_div(ceil_div(shape.listed(), splits), kernel.keys);
  cost.tensor_ops = static_cast<uint64_t>(2 * rows * shape.kv_heads * tiles * kernel.heads * steps *
                                          kernel.keys * (kernel.width + kernel.value_width));
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
