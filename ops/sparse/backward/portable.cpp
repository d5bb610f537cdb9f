// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements the main kernel of the backward of sparse attention with mma.sync and cp.async, for
// every architecture.
#include <iterator>
#include <memory>
#include <utility>

#include "codegen/base/integers.h"
#include "ops/sparse/backward/step.h"
#include "ops/tiles.h"

namespace lathe {
namespace {

constexpr int kElementBytes = 2;
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

KernelSpec sparse_backward_spec(const SparseProblem& problem, const SparseBackwardTile& tile) {
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

namespace {

class Portable final : public SparseBackward {
 public:
  explicit Portable(KernelSpec spec) : SparseBackward(std::move(spec)) {}

  int groups() const override {
    return SparseBackwardTile{static_cast<int>(tiling().heads), 0, 0, kernel->threads / 32}
        .groups();
  }
  Status launch(const SparseBackwardParams& p, int64_t blocks, CUstream_st* stream) const override {
    return kernel.launch(blocks, &p, stream);
  }
};

std::string refusal(const SparseProblem& problem, const DeviceFacts& facts) {
  if (!sparse_backward_candidates(problem, facts).empty()) return {};
  const int least = sparse_backward_smem(problem, *std::prev(std::end(kTiles)));
  return shared_memory_refusal("sparse_flash_attention: a block of the backward", least, facts);
}

std::vector<KernelSpec> candidates(const SparseProblem& problem, const DeviceFacts& facts) {
  std::vector<KernelSpec> specs;
  for (const SparseBackwardTile& tile : sparse_backward_candidates(problem, facts)) {
    specs.push_back(sparse_backward_spec(problem, tile));
  }
  return specs;
}

std::unique_ptr<SparseBackward> make(KernelSpec spec, const SparseProblem&, const DeviceFacts&) {
  return std::make_unique<Portable>(std::move(spec));
}

}  // namespace

const SparseBackwardStep kSparseBackwardPortable = {
    "portable", refusal, candidates, {"m", "n", "stages"}, make};

}  // namespace lathe
