// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Chooses tiles and makes specs of the backward of sparse attention.
#include "ops/sparse/backward_kernels.h"

#include "codegen/base/integers.h"
#include "ops/implementation.h"
#include "templates/params/sparse_attention.h"

namespace lathe {
namespace {

constexpr int kElementBytes = 2;
constexpr int kPrepareRows = 64, kPrepareThreads = 128, kFinishThreads = 256, kGatherThreads = 256;
// These bounds on the registers of dq were found by trial. With 64 keys a step the scores take as
// many again; if gradients of keys are added float by float, their addresses are twice as many.
constexpr int kMostAccumulators = 144, kMostOfSingles = 128, kMostOfWideSteps = 48;

// Many heads first, for keys are read and their gradients added once for all heads of a block. Four
// warps have the 16 heads of a small group, and leave room for a second block.
constexpr SparseBackwardTile kTiles[] = {
    {64, 64, 1, 8}, {64, 32, 2, 8}, {64, 32, 1, 8}, {32, 64, 1, 8}, {32, 32, 2, 8},
    {32, 32, 1, 8}, {16, 64, 1, 4}, {16, 32, 1, 4}, {16, 16, 1, 4},
};

int padded_keys(const SparseProblem& problem) {
  return sparse_padded_width(problem.head_dim + problem.rope_dim);
}

bool adds_singles(const DeviceFacts& facts) { return facts.arch.rfind("sm_8", 0) == 0; }

// Returns 16, 32 or 64 heads: no more than the group fills.
int most_heads(const SparseProblem& problem) {
  return problem.group <= 0 || problem.group > 32 ? 64 : problem.group > 16 ? 32 : 16;
}

bool fits(const SparseProblem& problem, const SparseBackwardTile& tile, const DeviceFacts& facts) {
  const int most = tile.keys > 32        ? kMostOfWideSteps
                   : adds_singles(facts) ? kMostOfSingles
                                         : kMostAccumulators;
  return tile.heads <= most_heads(problem) &&
         sparse_backward_smem(problem, tile) <= facts.shared_bytes_per_block &&
         sparse_backward_accumulators(problem, tile) <= most;
}

KernelSpec prepare_spec(const SparseProblem& problem, const SparseBackwardTile& tile) {
  const int smem_bytes = kPrepareThreads / 32 * 4;  // a float32 of each warp
  return shared_spec(
      LATHE_TEMPLATE("sparse", "sparse_backward_prepare", SparseBackwardPrepareParams, reserved),
      "SparseBackwardPrepareSmem", smem_bytes, kPrepareThreads,
      {Constant::type("element", "Element", problem.element),
       Constant::integer("value_width", "kValueWidth", sparse_padded_width(problem.value_dim)),
       Constant::integer("m", "kTileM", kPrepareRows),
       Constant::integer("groups", "kGroups", tile.groups()),
       Constant::flag("sinks", "kSinks", problem.dsinks)});
}

KernelSpec main_spec(const SparseProblem& problem, const SparseBackwardTile& tile) {
  return shared_spec(
      LATHE_TEMPLATE("sparse", "sparse_backward", SparseBackwardParams, reserved),
      "SparseBackwardSmem", sparse_backward_smem(problem, tile), 32 * tile.warps,
      {
          Constant::type("element", "Element", problem.element),
          // Without packed lengths the type of the offsets changes nothing: one word for all.
          Constant::type("cu", "Offset", problem.packed ? problem.cu_seqlens : Dtype::i32),
          Constant::integer("width", "kWidth", padded_keys(problem)),
          Constant::integer("value_width", "kValueWidth", sparse_padded_width(problem.value_dim)),
          Constant::integer("m", "kTileM", tile.heads),
          Constant::integer("n", "kTileN", tile.keys),
          Constant::integer("stages", "kStages", tile.stages),
          Constant::flag("packed", "kPacked", problem.packed),
          Constant::flag("values_in_keys", "kValuesInKeys", problem.values_in_keys),
          Constant::flag("deterministic", "kDeterministic", problem.deterministic),
      });
}

KernelSpec finish_spec(const SparseProblem& problem) {
  return KernelSpec::of(
      LATHE_TEMPLATE("sparse", "sparse_backward_finish", SparseBackwardFinishParams, dsinks_blocks),
      kFinishThreads, {Constant::type("element", "Element", problem.element)});
}

KernelSpec gather_spec(const char* kernel) {
  return KernelSpec::of(LATHE_TEMPLATE("sparse", kernel, SparseBackwardGatherParams, reserved),
                        kGatherThreads);
}

}  // namespace

int sparse_backward_smem(const SparseProblem& problem, const SparseBackwardTile& tile) {
  const int width = padded_keys(problem), values = sparse_padded_width(problem.value_dim);
  const int own = tile.heads * (width + values);
  const int keys = tile.keys * (width + (problem.values_in_keys ? 0 : values));
  const int weights = 2 * tile.heads * tile.keys;
  const int partial = tile.warps * 16 * tile.keys * 4;
  const int list = round_up(4 * 4 * tile.keys + 16, 128);
  return kElementBytes * (own + tile.stages * keys + weights) + partial + list + 8 * tile.heads;
}

int sparse_backward_accumulators(const SparseProblem& problem, const SparseBackwardTile& tile) {
  return tile.heads * padded_keys(problem) / (32 * tile.warps);
}

std::vector<SparseBackwardTile> sparse_backward_candidates(const SparseProblem& problem,
                                                           const DeviceFacts& facts) {
  return tiles_that(kTiles,
                    [&](const SparseBackwardTile& tile) { return fits(problem, tile, facts); });
}

Result<SparseBackwardTile> sparse_backward_choose(const SparseProblem& problem,
                                                  const DeviceFacts& facts) {
  return choose_tile(
      sparse_backward_candidates(problem, facts), facts, {"m", "n", "stages"},
      [&](const SparseBackwardTile& tile) { return main_spec(problem, tile); },
      "sparse_flash_attention: a block of the backward",
      [&] { return sparse_backward_smem(problem, *std::prev(std::end(kTiles))); });
}

SparseBackwardKernels sparse_backward_specs(const SparseProblem& problem,
                                            const SparseBackwardTile& tile) {
  SparseBackwardKernels kernels;
  kernels.prepare = prepare_spec(problem, tile);
  kernels.finish = finish_spec(problem);
  if (!problem.backward) return kernels;
  kernels.main = main_spec(problem, tile);
  if (problem.deterministic) {
    kernels.ranges = gather_spec("sparse_backward_ranges");
    kernels.fill = gather_spec("sparse_backward_fill");
    kernels.gather = gather_spec("sparse_backward_gather");
  }
  return kernels;
}

Result<SparseBackwardKernels> sparse_backward_kernels(const SparseProblem& problem,
                                                      const DeviceFacts& facts) {
  if (!problem.backward) return sparse_backward_specs(problem, {});
  LATHE_ASSIGN(const SparseBackwardTile tile, sparse_backward_choose(problem, facts));
  return sparse_backward_specs(problem, tile);
}

}  // namespace lathe
