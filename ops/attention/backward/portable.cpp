// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements the backward with mma.sync and cp.async, for every architecture and element. In a
// deterministic one each block of a head adds to its own accumulator in a fixed order; their number
// follows from that of multiprocessors, so bits may differ between GPUs.
#include "ops/attention/backward/portable.h"

#include <algorithm>
#include <climits>
#include <memory>
#include <span>
#include <utility>

#include "codegen/base/integers.h"
#include "ops/tiles.h"

namespace lathe {
namespace {

constexpr int kPlaceBytes = 128;  // where the block's keys and queries lie
// A thread has 255 registers. Those that are not accumulators hold addresses, operands and the
// masks of a row.
constexpr int kMostAccumulators = 224;
constexpr int kFinishThreads = 256;

// Heads of up to 128 have many keys a block, whose dk and dv fill the registers of eight warps, and
// two copies of the queries in flight. For wide heads two warps share 16 keys. Tiles for less
// shared memory follow, then tiles that a measurement may prefer, and kPair last. {64, 64, 1, 4, 2}
// is one that a measurement may prefer at width 128: two of its blocks are on a multiprocessor,
// which saves up to 15 % of the time by the simulator's clock, but they add to dq twice as often.
constexpr AttentionBackwardTile kTiles[] = {
    {64, 128, 2, 8, 1}, {64, 128, 1, 8, 1}, {64, 64, 1, 4, 1},  {64, 64, 1, 8, 2},
    {32, 64, 1, 8, 2},  {32, 32, 1, 4, 2},  {64, 64, 2, 4, 1},  {32, 128, 2, 8, 1},
    {64, 128, 1, 8, 2}, {64, 64, 1, 4, 2},  {128, 64, 1, 4, 2}, {32, 128, 1, 4, 1},
};

// Two of its blocks are on a multiprocessor: one computes while the other waits at a barrier or for
// memory. A warp has 32 keys, so that each load of queries from shared memory feeds four products.
constexpr AttentionBackwardTile kPair = {32, 128, 1, 4, 1};

// float32 (attention/operand.cuh): three planes leave room for few rows, and both of two warps that
// share keys compute their scores.
constexpr AttentionBackwardTile kSplitTiles[] = {
    {32, 64, 1, 4, 1}, {32, 32, 1, 2, 1}, {16, 32, 1, 2, 1},
    {16, 32, 1, 4, 2}, {16, 16, 1, 2, 2}, {32, 32, 1, 4, 2},
};

bool is_split(const AttentionProblem& problem) { return problem.element == Dtype::f32; }
std::span<const AttentionBackwardTile> tiles_of(const AttentionProblem& problem) {
  if (is_split(problem)) return kSplitTiles;
  return kTiles;
}

int widest(const AttentionProblem& problem) {
  return std::max(attention_padded_width(problem.head_dim),
                  attention_padded_width(problem.value_dim));
}

// The warps share dq out, rows by columns: two or four of them a panel of 64 columns, two half a
// panel.
bool divides_dq(const AttentionProblem& problem, const AttentionBackwardTile& tile) {
  for (const int ways : {1, 2, 4}) {
    const int blocks = tile.rows / 16 * ways;
    const bool columns = ways < 4 || attention_padded_width(problem.head_dim) % 64 == 0;
    if (columns && blocks >= tile.warps && blocks % tile.warps == 0) return true;
  }
  return false;
}

bool fits(const AttentionProblem& problem, const AttentionBackwardTile& tile,
          const DeviceFacts& facts) {
  // 32 keys a warp leave no registers for the columns of dq where heads are wide.
  const bool twofold = tile.keys * tile.width_warps > 16 * tile.warps;
  return attention_backward_smem(problem, tile) <= facts.shared_bytes_per_block &&
         attention_backward_accumulators(problem, tile) <= kMostAccumulators &&
         !(twofold && widest(problem) > 128) && divides_dq(problem, tile);
}

// True if kPair is the tile to begin with. By the simulator's clock it saves a quarter of the time
// on A100 and H100. A deterministic backward has one block for each multiprocessor, not two.
bool begins_paired(const AttentionProblem& problem, const DeviceFacts& facts) {
  if (is_split(problem) || problem.deterministic || widest(problem) > 64) return false;
  if (problem.modifies_scores()) return false;
  const int two = 2 * (attention_backward_smem(problem, kPair) + kReservedShared);
  return two <= facts.shared_bytes_per_multiprocessor;
}

// Returns kPair, or the first tile that fits: with shared widths if they are over 128.
const AttentionBackwardTile* preferred(const AttentionProblem& problem, const DeviceFacts& facts) {
  if (begins_paired(problem, facts)) return &kPair;
  const int width = widest(problem);
  const bool one_copy = width > 96 && problem.modifies_scores();
  for (const AttentionBackwardTile& tile : tiles_of(problem)) {
    if ((tile.width_warps == 2) != (width > 128) || (one_copy && tile.stages == 2)) continue;
    if (fits(problem, tile, facts)) return &tile;
  }
  return nullptr;
}

KernelSpec finish_spec(const AttentionProblem& problem) {
  KernelSpec spec = KernelSpec::of(LATHE_TEMPLATE("attention", "attention_backward_finish",
                                                  AttentionBackwardFinishParams, softmax_scale),
                                   kFinishThreads);
  spec.constants = {Constant::type("element", "Element", problem.element)};
  add_alignment(problem.alignment, &spec);
  return spec;
}

}  // namespace

int attention_backward_smem(const AttentionProblem& problem, const AttentionBackwardTile& tile) {
  const int width = attention_padded_width(problem.head_dim);
  const int value_width = attention_padded_width(problem.value_dim);
  const int elements = tile.keys * (width + value_width) +
                       tile.rows * (tile.stages * width + value_width) +
                       (is_split(problem) ? 1 : tile.width_warps) * tile.rows * tile.keys;
  return (is_split(problem) ? 6 : 2) * elements + 2 * 4 * tile.rows + kPlaceBytes +
         attention_queue_bytes(problem);
}

int attention_backward_accumulators(const AttentionProblem& problem,
                                    const AttentionBackwardTile& tile) {
  const int threads = 32 * tile.warps;
  const int widths =
      attention_padded_width(problem.head_dim) + attention_padded_width(problem.value_dim);
  const int scores = 2 * tile.rows * (is_split(problem) ? tile.width_warps : 1);
  return tile.keys * (widths + scores) / threads;
}

std::vector<AttentionBackwardTile> attention_backward_candidates(const AttentionProblem& problem,
                                                                 const DeviceFacts& facts) {
  const AttentionBackwardTile* first = preferred(problem, facts);
  std::vector<AttentionBackwardTile> candidates =
      tiles_that(tiles_of(problem), [&](const AttentionBackwardTile& tile) {
        return (first == nullptr || !(tile == *first)) && fits(problem, tile, facts);
      });
  if (first != nullptr) candidates.insert(candidates.begin(), *first);
  return candidates;
}

std::string attention_backward_tile_refusal(const AttentionProblem& problem,
                                            const DeviceFacts& facts) {
  if (!attention_backward_candidates(problem, facts).empty()) return {};
  const int least = least_bytes(tiles_of(problem), [&](const AttentionBackwardTile& tile) {
    const bool counts = &tile == tiles_of(problem).data() ||
                        attention_backward_accumulators(problem, tile) <= kMostAccumulators;
    return counts ? attention_backward_smem(problem, tile) : INT_MAX;
  });
  return shared_memory_refusal("flash_attention: a block of the backward", least, facts);
}

KernelSpec attention_backward_spec(const AttentionProblem& problem,
                                   const AttentionBackwardTile& tile, bool apart) {
  KernelSpec spec = shared_spec(
      LATHE_TEMPLATE("attention", "attention_backward", AttentionBackwardParams, softcap),
      "AttentionBackwardSmem", attention_backward_smem(problem, tile), 32 * tile.warps);
  spec.constants = {
      Constant::type("element", "Element", problem.element),
      attention_offsets(problem),
      Constant::integer("width", "kWidth", attention_padded_width(problem.head_dim)),
      Constant::integer("value_width", "kValueWidth", attention_padded_width(problem.value_dim)),
      Constant::integer("m", "kTileM", tile.rows),
      Constant::integer("n", "kTileN", tile.keys),
      Constant::integer("stages", "kStages", tile.stages),
      Constant::integer("width_warps", "kWidthWarps", tile.width_warps),
      Constant::flag("packed", "kPacked", problem.packed),
      Constant::flag("local", "kLocal", problem.local),
  };
  add_score_flags(problem, &spec);
  spec.add({
      Constant::flag("deterministic", "kDeterministic", problem.deterministic),
      Constant::flag("heads_apart", "kHeadsApart", apart),
  });
  add_alignment(problem.alignment, &spec);
  add_mods(problem, &spec);
  return spec;
}

namespace {

class Portable final : public AttentionBackward {
 public:
  Portable(KernelSlot main, const AttentionBackwardProblem& problem, const DeviceFacts& facts)
      : AttentionBackward(std::move(main), problem, facts) {
    finish = finish_spec(problem);
  }

 protected:
  // One for each tile of keys or, if each has its own accumulator of dq, as many as fill the
  // device.
  int64_t slices(const AttentionShape& shape) const override {
    const int64_t tiles = AttentionBackward::slices(shape);
    // A sequence of fewer tiles has an accumulator for each, and the others add 0.
    constexpr int64_t kInvariantSlices = 8;
    if (problem_.rank_invariant) return std::min(tiles, kInvariantSlices);
    const int64_t columns = bounded_product({shape.sequences, shape.heads});
    if (!problem_.deterministic || columns == 0 || tiles == 0) return tiles;
    return std::clamp<int64_t>(ceil_div(facts_.multiprocessors, columns), 1, tiles);
  }

  int64_t parts_to_fill(const AttentionShape& shape) const override {
    return problem_.deterministic ? shape.sequences : AttentionBackward::parts_to_fill(shape);
  }

  AttentionSums sums_of_dq(const AttentionShape& shape, const AttentionGradients& wanted,
                           const AttentionBackwardLaunch& launch) const override {
    AttentionSums out;
    out.rows = launch.rows, out.width = problem_.head_dim;
    out.multiplied_width = tiling().width;
    if (!wanted.dq) return out;
    out.accumulators = problem_.deterministic ? std::max<int64_t>(launch.slices, 1) : 1;
    out.finish_blocks = finish_blocks_of(launch.rows, shape.heads, problem_.head_dim);
    return out;
  }

  Status launch_main(const AttentionBackwardCall& of, const AttentionSlot& kernel) const override {
    AttentionBackwardParams p = {};
    fill_main(of, &p);
    if (mask_queries) LATHE_TRY(mask_queries.launch(of.lists.blocks, &p, of.call.stream));
    return kernel.launch(of.launch.main_blocks, &p, of.call.stream);
  }

  Status launch_finish(const AttentionBackwardCall& of) const override {
    AttentionBackwardFinishParams p = {};
    fill_finish(of, &p);
    return finish.launch(of.launch.finish_blocks(), &p, of.call.stream);
  }
};

std::string refusal(const AttentionBackwardProblem& problem, const DeviceFacts& facts) {
  return attention_backward_tile_refusal(problem, facts);
}

std::vector<KernelSpec> candidates(const AttentionBackwardProblem& problem,
                                   const DeviceFacts& facts) {
  std::vector<KernelSpec> specs;
  for (const AttentionBackwardTile& tile : attention_backward_candidates(problem, facts)) {
    specs.push_back(attention_backward_spec(problem, tile, problem.main_apart()));
  }
  return specs;
}

std::unique_ptr<AttentionBackward> make(KernelSpec spec, const AttentionBackwardProblem& problem,
                                        const DeviceFacts& facts) {
  return std::make_unique<Portable>(std::move(spec), problem, facts);
}

}  // namespace

std::unique_ptr<AttentionBackward> make_attention_backward_ends(const AttentionProblem& problem,
                                                                const DeviceFacts& facts) {
  return std::make_unique<Portable>(KernelSlot(), AttentionBackwardProblem{problem, {}}, facts);
}

const AttentionBackwardStep kAttentionBackwardPortable = {
    "portable", refusal, candidates, {"m", "n", "stages", "width_warps"}, make};

}  // namespace lathe
