// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements the forward with mma.sync and cp.async, for every architecture and element.
#include "ops/attention/forward/portable.h"

#include <algorithm>
#include <climits>
#include <memory>
#include <span>
#include <utility>

#include "ops/tiles.h"
#include "templates/params/attention.h"

namespace lathe {
namespace {

// A thread has 255 registers; the rest holds addresses, row maxima and sums, and operands. Above
// the first bound ptxas spills a few words for some options and architectures, which only a
// measurement can allow; above the second it spills in every step.
constexpr int kSafeAccumulators = 160, kMostAccumulators = 224;

// The order is by rows first, which decide how often k and v are read, then by copies in flight,
// then by few warps, which share each load of k and v between more products. A warp owns 16 or 32
// rows.
constexpr AttentionTile kTiles[] = {
    {128, 64, 2, 4}, {64, 64, 2, 4},  {128, 64, 1, 8}, {64, 64, 1, 4},   {128, 64, 2, 8},
    {128, 64, 1, 4}, {128, 32, 2, 4}, {64, 32, 2, 4},  {128, 128, 1, 8}, {64, 32, 1, 4},
};

// float32 operands are three bfloat16 planes (attention/operand.cuh): tiles of half the elements,
// and one copy, since the threads that split it cannot run ahead. The order is by rows first, then
// by whole warps.
constexpr AttentionTile kSplitTiles[] = {
    {128, 32, 1, 8}, {64, 32, 1, 4}, {64, 16, 1, 4}, {32, 32, 1, 2}, {32, 16, 1, 2},
};

std::span<const AttentionTile> tiles_of(const AttentionProblem& problem) {
  if (problem.element == Dtype::f32) return kSplitTiles;
  return kTiles;
}

// Returns the bytes of an element of a tile.
int element_bytes(const AttentionProblem& problem) { return problem.element == Dtype::f32 ? 6 : 2; }

bool fits(const AttentionProblem& problem, const AttentionTile& tile, const DeviceFacts& facts) {
  return attention_forward_smem(problem, tile) <= facts.shared_bytes_per_block &&
         attention_forward_accumulators(problem, tile) <= kMostAccumulators;
}

// Returns the tile of kTiles to begin with. Narrow heads have four warps of 32 rows, which read
// each key and value from shared memory half as often as eight of 16. They have one copy, so that
// two blocks fit on a multiprocessor and one computes while the other waits: by the simulator's
// clock 1.6 times as fast as eight warps at width 128, and 1.2 to 1.3 times as fast as two copies
// at width 64. Widths that differ have two copies where registers allow it. Eight warps with twice
// the keys are as fast on sm_80, whose tensor cores ask less of shared memory, and they spill
// nothing at width 128; they are also the choice where two blocks do not fit. A mod needs
// registers, but their number is not known: eight warps. If 128 rows would all but fill the shared
// memory, a block has half of them. The accumulators of wide heads need eight warps, or half the
// rows, and leave room for one copy.
const AttentionTile& preferred(const AttentionProblem& problem, const DeviceFacts& facts) {
  if (std::max(problem.head_dim, problem.value_dim) <= 128) {
    const int bytes = attention_forward_smem(problem, kTiles[0]);
    if (4 * bytes > 3 * facts.shared_bytes_per_block) return kTiles[1];
    if (!problem.mods.empty()) return kTiles[4];
    const bool safe = attention_forward_accumulators(problem, kTiles[0]) <= kSafeAccumulators;
    const bool narrow = std::max(problem.head_dim, problem.value_dim) <= 64;
    if (safe && !narrow) return kTiles[0];
    const int two = 2 * (attention_forward_smem(problem, kTiles[5]) + kReservedShared);
    const bool full = attention_forward_accumulators(problem, kTiles[5]) >= kMostAccumulators;
    const bool few =
        two > facts.shared_bytes_per_multiprocessor || (full && facts.arch.starts_with("sm_8"));
    return few && fits(problem, kTiles[8], facts) ? kTiles[8] : kTiles[5];
  }
  return fits(problem, kTiles[2], facts) ? kTiles[2] : kTiles[3];
}

}  // namespace

int attention_forward_smem(const AttentionProblem& problem, const AttentionTile& tile) {
  const int width = attention_padded_width(problem.head_dim);
  const int value_width = attention_padded_width(problem.value_dim);
  return element_bytes(problem) *
             (tile.rows * width + tile.stages * tile.keys * (width + value_width)) +
         attention_queue_bytes(problem);
}

int attention_forward_accumulators(const AttentionProblem& problem, const AttentionTile& tile) {
  const int threads = 32 * tile.warps;
  const int out = tile.rows * attention_padded_width(problem.value_dim) / threads;
  const int scores = tile.rows * tile.keys / threads;
  return out + scores + scores / 2;
}

std::vector<AttentionTile> attention_candidates(const AttentionProblem& problem,
                                                const DeviceFacts& facts) {
  std::vector<AttentionTile> candidates = tiles_that(
      tiles_of(problem), [&](const AttentionTile& tile) { return fits(problem, tile, facts); });
  if (problem.element == Dtype::f32) return candidates;
  const auto first = std::find(candidates.begin(), candidates.end(), preferred(problem, facts));
  if (first != candidates.end()) std::rotate(candidates.begin(), first, first + 1);
  // Along a diagonal a square tile wastes least: it is tried right after the default.
  if (problem.local && candidates.size() > 2) {
    const auto square = std::find_if(candidates.begin() + 1, candidates.end(),
                                     [](const auto& tile) { return tile.rows == tile.keys; });
    if (square != candidates.end()) std::rotate(candidates.begin() + 1, square, square + 1);
  }
  return candidates;
}

std::string attention_tile_refusal(const AttentionProblem& problem, const DeviceFacts& facts) {
  if (!attention_candidates(problem, facts).empty()) return {};
  const int least = least_bytes(tiles_of(problem), [&](const AttentionTile& tile) {
    const bool counts = &tile == tiles_of(problem).data() ||
                        attention_forward_accumulators(problem, tile) <= kMostAccumulators;
    return counts ? attention_forward_smem(problem, tile) : INT_MAX;
  });
  return shared_memory_refusal("flash_attention: a block", least, facts);
}

KernelSpec attention_forward_spec(const AttentionProblem& problem, const AttentionTile& tile) {
  KernelSpec spec =
      shared_spec(LATHE_TEMPLATE("attention", "attention_forward", AttentionForwardParams, softcap),
                  "AttentionForwardSmem", attention_forward_smem(problem, tile), 32 * tile.warps);
  const int width = attention_padded_width(problem.head_dim);
  const int value_width = attention_padded_width(problem.value_dim);
  spec.constants = {
      Constant::type("element", "Element", problem.element),
      attention_offsets(problem),
      Constant::integer("width", "kWidth", width),
      Constant::integer("value_width", "kValueWidth", value_width),
      Constant::integer("m", "kTileM", tile.rows),
      Constant::integer("n", "kTileN", tile.keys),
      Constant::integer("stages", "kStages", tile.stages),
      Constant::flag("packed", "kPacked", problem.packed),
      Constant::flag("local", "kLocal", problem.local),
  };
  add_score_flags(problem, &spec);
  spec.add({
      Constant::flag("sinks", "kSinks", problem.sinks),
      Constant::flag("pack_gqa", "kPackGqa", problem.pack_gqa),
      Constant::flag("listed", "kListed", problem.mod("mask_mod") != nullptr),
  });
  add_alignment(problem.alignment, &spec);
  add_mods(problem, &spec);
  return spec;
}

namespace {

class Portable final : public AttentionForward {
 public:
  using AttentionForward::AttentionForward;

  Status launch(const AttentionForwardCall& of) const override {
    AttentionForwardParams p = {};
    fill(of, &p);
    LATHE_TRY(list_blocks(of, p));
    return kernel.launch(attention_forward_blocks(tiling(), of.whole), &p, of.call.stream);
  }
};

std::vector<KernelSpec> candidates(const AttentionProblem& problem, const DeviceFacts& facts) {
  std::vector<KernelSpec> specs;
  for (const AttentionTile& tile : attention_candidates(problem, facts)) {
    specs.push_back(attention_forward_spec(problem, tile));
  }
  return specs;
}

std::unique_ptr<AttentionForward> make(KernelSpec spec, const AttentionProblem& problem,
                                       const DeviceFacts&) {
  return std::make_unique<Portable>(std::move(spec), problem);
}

}  // namespace

const AttentionForwardStep kAttentionForwardPortable = {
    "portable", attention_tile_refusal, candidates, {"m", "n", "stages"}, make};

}  // namespace lathe
