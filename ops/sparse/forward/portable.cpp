// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements the forward of sparse attention with mma.sync and cp.async, for every architecture.
#include <algorithm>
#include <memory>
#include <utility>

#include "codegen/base/integers.h"
#include "ops/shapes.h"
#include "ops/sparse/forward/step.h"
#include "ops/tiles.h"

namespace lathe {
namespace {

constexpr int kMostHeads = 64;
constexpr int kElementBytes = 2;
constexpr int kByteRowsNarrow = 3;     // kByteRows of templates/attention/decode/narrow_rows.cuh
constexpr int kWarpValues = 256;       // columns of v that a warp has in registers
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

namespace {

class Portable final : public SparseForward {
 public:
  using SparseForward::SparseForward;

  Status launch(const SparseForwardParams& p, int64_t blocks, CUstream_st* stream) const override {
    return kernel.launch(blocks, &p, stream);
  }
};

std::string refusal(const SparseProblem& problem, const DeviceFacts& facts) {
  if (!sparse_candidates(problem, facts).empty()) return {};
  const int least = sparse_forward_smem(problem, {16, 16, groups_for(problem, 16)});
  return shared_memory_refusal("sparse_flash_attention: a block", least, facts);
}

std::vector<KernelSpec> candidates(const SparseProblem& problem, const DeviceFacts& facts) {
  std::vector<KernelSpec> specs;
  for (const SparseTile& tile : sparse_candidates(problem, facts)) {
    specs.push_back(sparse_forward_spec(problem, tile));
  }
  return specs;
}

std::unique_ptr<SparseForward> make(KernelSpec spec, const SparseProblem&, const DeviceFacts&) {
  return std::make_unique<Portable>(std::move(spec));
}

}  // namespace

const SparseForwardStep kSparseForwardPortable = {
    "portable", refusal, candidates, {"m", "n", "groups", "stages"}, make};

}  // namespace lathe
