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
#include "ops/attention/sm90/block_kernels.h"
#include "ops/implementation.h"
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

AttentionProblem attention_block_problem(AttentionProblem problem) {
  problem.packed = problem.sinks = problem.pack_gqa = false;
  // Rows of other ranges are masked by the code that masks by window.
  problem.local = problem.local || problem.ranges;
  return problem;
}

KernelSpec attention_block_spec(const AttentionProblem& problem, const AttentionTile& tile) {
  KernelSpec spec = attention_forward_spec(attention_block_problem(problem), tile);
  spec.set(LATHE_TEMPLATE("attention", "attention_block", AttentionBlockParams, first));
  spec.smem = "AttentionBlockSmem";
  for (Constant& constant : spec.constants) {
    if (constant.name == "listed") constant.value = 0;  // it makes its visits as it goes
  }
  spec.constants.push_back(Constant::flag("ranges", "kRanges", problem.ranges));
  spec.constants.push_back(Constant::flag("persistent", "kPersistent", problem.persistent));
  return spec;
}

KernelSpec attention_block_backward_spec(const AttentionProblem& problem,
                                         const AttentionBackwardTile& tile) {
  KernelSpec spec = attention_backward_spec(attention_block_problem(problem), tile, false);
  spec.set(LATHE_TEMPLATE("attention", "attention_block_backward", AttentionBlockBackwardParams,
                          first_keys));
  spec.smem = "AttentionBlockBackwardSmem";
  spec.constants.push_back(Constant::flag("ranges", "kRanges", problem.ranges));
  spec.constants.push_back(Constant::flag("persistent", "kPersistent", problem.persistent));
  return spec;
}

namespace {

Result<KernelSlot> forward_step(const AttentionProblem& problem, const DeviceFacts& facts) {
  const AttentionProblem own = attention_block_problem(problem);
  const char* const refusal = attention_block_warpgroups_refusal(problem, facts);
  const auto spec_of = [&](const AttentionTile& tile) {
    return attention_block_spec(problem, tile);
  };
  if (refusal == nullptr) {
    const std::vector<const char*> tile = {"m", "n", "stages"};
    return KernelSlot(choose_family({{attention_block_warpgroups_spec(problem)}, tile}, facts, [&] {
      return group_of(attention_candidates(own, facts), tile, spec_of);
    }));
  }
  LATHE_TRY(attention_choose(own, without_choices(facts)));
  KernelSpec spec =
      spec_of(pick(attention_candidates(own, facts), facts, {"m", "n", "stages"}, spec_of));
  spec.family_reason = text("not sm90: ", refusal);
  return KernelSlot(std::move(spec));
}

Result<KernelSlot> backward_step(const AttentionProblem& problem, const DeviceFacts& facts) {
  const AttentionProblem own = attention_block_problem(problem);
  const char* const refusal = attention_block_backward_warpgroups_refusal(problem, facts);
  const auto spec_of = [&](const AttentionBackwardTile& tile) {
    return attention_block_backward_spec(problem, tile);
  };
  if (refusal == nullptr) {
    const std::vector<const char*> tile = {"m", "n", "stages", "width_warps"};
    return KernelSlot(choose_family(
        {{attention_block_backward_warpgroups_spec(problem)}, tile}, facts,
        [&] { return group_of(attention_backward_candidates(own, facts), tile, spec_of); }));
  }
  LATHE_TRY(attention_backward_choose(own, without_choices(facts)));
  KernelSpec spec = spec_of(pick(attention_backward_candidates(own, facts), facts,
                                 {"m", "n", "stages", "width_warps"}, spec_of));
  spec.family_reason = text("not sm90: ", refusal);
  return KernelSlot(std::move(spec));
}

}  // namespace

Result<AttentionBlockKernels> attention_block_kernels(const AttentionProblem& problem,
                                                      const DeviceFacts& facts) {
  AttentionBlockKernels kernels;
  if (problem.forward) {
    LATHE_ASSIGN(kernels.forward, forward_step(problem, facts));
  }
  if (problem.backward) {
    KernelSpec prepare = KernelSpec::of(LATHE_TEMPLATE("attention", "attention_block_prepare",
                                                       AttentionBlockPrepareParams, reserved),
                                        kSmallThreads);
    add_alignment(problem.alignment, &prepare);
    kernels.prepare = std::move(prepare);
    LATHE_ASSIGN(kernels.backward, backward_step(problem, facts));
    if (problem.deterministic) {
      KernelSpec finish = KernelSpec::of(
          LATHE_TEMPLATE("attention", "attention_block_finish", AttentionBlockFinishParams, first),
          kSmallThreads);
      add_alignment(problem.alignment, &finish);
      kernels.finish = std::move(finish);
    }
  }
  if (problem.positions) {
    kernels.positions = KernelSpec::of(
        LATHE_TEMPLATE("attention", "attention_positions", AttentionPositionsParams, run),
        kSmallThreads);
  }
  return kernels;
}

int64_t attention_block_grid(const KernelNumbers& kernel, int registers, const DeviceFacts& facts,
                             int64_t sm_margin, int64_t tiles) {
  if (kernel.persistent == 0) return tiles;
  const int64_t used = ceil_div(registers, kRegisterStep) * kRegisterStep * kernel.threads;
  const int64_t at_once =
      std::min(facts.registers_per_multiprocessor / used,
               facts.shared_bytes_per_multiprocessor / (kernel.smem_bytes + kReservedShared));
  const int64_t free = std::max<int64_t>(facts.multiprocessors - sm_margin, 1);
  return std::min(tiles, free * std::max<int64_t>(at_once, 1));
}

int64_t attention_positions_blocks(const KernelNumbers& kernel, int64_t count, int64_t run) {
  return ceil_div(ceil_div(count, run), kernel.threads / 32);
}

uint64_t attention_block_workspace_bytes(const KernelNumbers& forward, int64_t keys) {
  if (forward.ranges != 0) return 0;
  WorkspaceLayout layout;
  layout.add({ceil_div(keys, forward.n), 2 * 4});
  return static_cast<uint64_t>(layout.total());
}

Result<AttentionBlockBackwardLaunch> attention_block_backward_launch(
    const AttentionProblem& problem, const AttentionBlockKernels& kernels, const DeviceFacts& facts,
    const AttentionShape& shape, bool first) {
  AttentionBlockBackwardLaunch out;
  const KernelNumbers& main = kernels.backward.numbers();
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
    out.finish_blocks = ceil_div(cells / 4, kernels.finish->threads);
  } else if (first) {
    out.dq_chunks = cells / 4;
  }
  out.prepare_blocks =
      ceil_div(out.lse2_values + out.sum_chunks + out.dq_chunks, kernels.prepare->threads);
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

int64_t lse_merge_blocks(const KernelNumbers& kernel, int64_t rows) {
  const int64_t rows_of_block = kernel.threads / kernel.lanes;
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
