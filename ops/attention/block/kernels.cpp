// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/block/kernels.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "codegen/base/integers.h"
#include "codegen/base/invalid.h"
#include "codegen/base/text.h"
#include "codegen/choice.h"
#include "ops/workspace.h"
#include "templates/params/attention.h"
#include "templates/params/attention_backward.h"
#include "templates/params/attention_merge.h"

namespace lathe {
namespace {

constexpr int kSmallThreads = 128;               // of lse_merge, and kernels without constants
constexpr int kMergeColumns = 4;                 // of a lane at a time: 16 bytes of float32
constexpr int64_t kRegisterStep = 8;             // of a thread, as the device gives them
constexpr int64_t kMostRows = int64_t{1} << 50;  // of all heads; no workspace holds more

// Returns as many lanes of lse_merge for a row as its columns keep busy, so that no warp loads less
// than it could.
int lanes_for(int value_dim) {
  int lanes = 2;
  while (lanes < 32 && lanes * kMergeColumns < value_dim) lanes *= 2;
  return lanes;
}

}  // namespace

namespace {

KernelSpec small_spec(const Template& from, int alignment) {
  KernelSpec spec = KernelSpec::of(from, kSmallThreads);
  add_alignment(alignment, &spec);
  return spec;
}

}  // namespace

KernelSpec attention_block_prepare_spec(const AttentionProblem& problem) {
  return small_spec(
      LATHE_TEMPLATE("attention", "attention_block_prepare", AttentionBlockPrepareParams, reserved),
      problem.alignment);
}

KernelSpec attention_block_finish_spec(const AttentionProblem& problem) {
  return small_spec(
      LATHE_TEMPLATE("attention", "attention_block_finish", AttentionBlockFinishParams, first),
      problem.alignment);
}

KernelSpec attention_positions_spec() {
  return KernelSpec::of(
      LATHE_TEMPLATE("attention", "attention_positions", AttentionPositionsParams, run),
      kSmallThreads);
}

int64_t attention_block_grid(const AttentionTiling& kernel, int registers, const DeviceFacts& facts,
                             int64_t sm_margin, int64_t tiles) {
  if (kernel.persistent == 0) return tiles;
  const int64_t used = ceil_div(registers, kRegisterStep) * kRegisterStep * kernel.threads;
  const int64_t at_once =
      std::min(facts.registers_per_multiprocessor / used,
               facts.shared_bytes_per_multiprocessor / (kernel.smem_bytes + kReservedShared));
  const int64_t free = std::max<int64_t>(facts.multiprocessors - sm_margin, 1);
  return std::min(tiles, free * std::max<int64_t>(at_once, 1));
}

int64_t attention_positions_blocks(int64_t count, int64_t run) {
  return ceil_div(ceil_div(count, run), kSmallThreads / 32);
}

uint64_t attention_block_workspace_bytes(const AttentionTiling& forward, int64_t keys) {
  if (forward.ranges != 0) return 0;
  WorkspaceLayout layout;
  layout.add({ceil_div(keys, forward.n), 2 * 4});
  return static_cast<uint64_t>(layout.total());
}

Result<AttentionBlockBackwardLaunch> attention_block_backward_launch(
    const AttentionProblem& problem, const AttentionTiling& main, const DeviceFacts& facts,
    const AttentionShape& shape, bool first) {
  AttentionBlockBackwardLaunch out;
  const int64_t tiles = ceil_div(shape.seq_k, main.n);
  const int64_t columns = bounded_product({shape.sequences, shape.kv_heads});
  out.slices = tiles;
  if (problem.deterministic && columns > 0) {
    const int64_t filling = ceil_div(facts.multiprocessors, columns);
    out.slices = std::min(tiles, std::max<int64_t>(filling, 1));
  }
  out.main_blocks = bounded_product({out.slices, columns});
  out.lse2_values = bounded_product({shape.sequences, shape.heads, shape.seq_q});
  if (out.lse2_values >= kMostRows) return invalid("the workspace passes 2^63 bytes");
  const int64_t cells = out.lse2_values * problem.head_dim;
  if (problem.deterministic) {
    if (__builtin_mul_overflow(cells / 4, out.slices, &out.sum_chunks) ||
        out.sum_chunks > (int64_t{1} << 58)) {
      return invalid("the workspace passes 2^63 bytes");
    }
    out.finish_blocks = ceil_div(cells / 4, kSmallThreads);
  } else if (first) {
    out.dq_chunks = cells / 4;
  }
  out.prepare_blocks = ceil_div(out.lse2_values + out.sum_chunks + out.dq_chunks, kSmallThreads);
  WorkspaceLayout layout;
  out.lse2 = layout.add({out.lse2_values, 4});
  out.sums = layout.add({out.sum_chunks, 16});
  const int64_t runs = ceil_div(shape.seq_q, main.m);
  out.ranges = layout.add({problem.positions ? runs : 0, 2 * 4});
  out.total = layout.total();
  LATHE_TRY(layout.status());
  return out;
}

KernelSpec lse_merge_spec(const LseMergeProblem& problem) {
  KernelSpec spec = KernelSpec::of(
      LATHE_TEMPLATE("attention", "lse_merge", LseMergeParams, value_dim), kSmallThreads);
  spec.constants = {
      // Without a block its type changes nothing: one word for all.
      Constant::type("block_out", "Block", problem.block ? problem.block_out : Dtype::f32),
      Constant::type("rounded_type", "Rounded",
                     problem.rounded ? problem.rounded_type : Dtype::bf16),
      Constant::integer("lanes", "kLanes", lanes_for(problem.value_dim)),
      Constant::flag("block", "kBlock", problem.block),
      Constant::flag("sinks", "kSinks", problem.sinks),
      Constant::flag("rounded", "kRounded", problem.rounded),
  };
  add_alignment(problem.alignment, &spec);
  return spec;
}

LseMergeNumbers::LseMergeNumbers(const KernelSpec& spec)
    : rows(spec.threads / spec.constant("lanes")) {}

int64_t lse_merge_blocks(const LseMergeNumbers& kernel, int64_t rows) {
  const int64_t rows_of_block = kernel.rows;
  return (rows + rows_of_block - 1) / rows_of_block;
}

Cost lse_merge_cost(const LseMergeProblem& problem, int64_t rows, int64_t heads) {
  const int64_t width = problem.value_dim;
  const int64_t own = 2 * 4 * (width + 1);  // read and written
  const int64_t block = problem.block ? bytes_of(problem.block_out) * width + 4 : 0;
  const int64_t rounded = problem.rounded ? bytes_of(problem.rounded_type) * width : 0;
  Cost cost;
  cost.minimum_bytes = rows * (own + block + rounded) + (problem.sinks ? 4 * heads : 0);
  cost.bytes = cost.minimum_bytes;
  cost.flops = 3 * rows * width;
  return cost;
}

}  // namespace lathe
