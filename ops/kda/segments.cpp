// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Computes segments of chunked KDA from shapes, and makes the specs that follow from a walk's.
#include "ops/kda/segments.h"

#include <algorithm>

#include "codegen/base/integers.h"
#include "templates/params/kda_chunked.h"
#include "templates/params/kda_pieces.h"

namespace lathe {
namespace {

constexpr int kLeastMergeRows = 16;              // merge_chain.cuh
constexpr int kChainRows = 8, kChainStages = 3;  // chain.cuh
// Blocks of the least rows that are still faster than fewer blocks, each of which reads all of M.
constexpr int64_t kFewMergeBlocks = 96;

// A chain of fewer costs more than it saves: the summaries are the walk once more, of V + K
// columns.
constexpr int kLeastSegments = 4;
constexpr int64_t kLeastLength = 256;
// A number whose time is at most the best one's over this is as good; the fewest win.
constexpr double kAsGood = 0.95;

// Returns the time of a call's launches with `segments` segments, in tokens of one walk.
int64_t time_of(const KdaSegmentProblem& question, int64_t segments) {
  const int64_t walks = (question.forward + question.back) * question.value_tiles;
  const int64_t length = ceil_div(ceil_div(question.tokens, kKdaChunk), segments) * kKdaChunk;
  const auto waves = [&](int64_t blocks) { return ceil_div(blocks, question.blocks_at_once); };
  const int64_t launches = question.apart ? question.forward + question.back : 1;
  const int64_t walk =
      launches * length * waves(bounded_product({question.heads, walks / launches, segments}));
  if (segments == 1 && !question.ranks) return walk;
  const int64_t ends = question.ranks ? segments : segments - 1;
  const int64_t transitions = question.ranks ? segments : segments - 2;
  const int64_t summaries =
      bounded_product({question.heads, walks * ends + question.key_tiles * transitions});
  return walk + length * waves(summaries) + transitions * question.link_tokens +
         question.launch_tokens;
}

}  // namespace

int kda_chain_smem(int padded_keys) {
  const int inner = padded_keys <= 64 ? 64 : padded_keys <= 128 ? 32 : 16;
  return 4 * padded_keys * (kChainStages * inner + 2 * kChainRows);
}

KernelSpec kda_merge_spec(const KdaProblem& problem, const KdaSummaryParts& parts, bool rounded) {
  const int width = kda_padded_keys(problem);
  // One part of bfloat16, or two of TF32; as many rows at most as there are registers for.
  const int rows = !rounded ? kLeastMergeRows : width <= 128 ? 64 : 32;
  // Two states.
  return shared_spec(LATHE_TEMPLATE("kda", "kda_merge", KdaMergeParams, reserved), "KdaMergeSmem",
                     2 * rows * width * (rounded ? 2 : 2 * 4), 2 * width,
                     {kda_offsets(problem), Constant::integer("width", "kWidth", width),
                      Constant::flag("whole", "kWhole", problem.key_dim == width),
                      Constant::integer("parts", "kParts", rounded ? 1 : 2),
                      Constant::integer("rows", "kRows", rows),
                      Constant::flag("packed", "kPacked", problem.packed),
                      Constant::flag("states", "kStates", parts.states),
                      Constant::flag("grads", "kGrads", parts.grads),
                      Constant::flag("ranks", "kRanks", problem.ranks)});
}

KernelSpec kda_compose_spec(const KdaProblem& problem) {
  const int width = kda_padded_keys(problem);
  return shared_spec(LATHE_TEMPLATE("kda", "kda_compose", KdaComposeParams, reserved),
                     "KdaComposeSmem", kda_chain_smem(width), width,
                     {Constant::integer("width", "kWidth", width)});
}

KernelSpec kda_pieces_spec(const KdaProblem& problem) {
  const int width = kda_padded_keys(problem);
  return shared_spec(LATHE_TEMPLATE("kda", "kda_pieces", KdaPiecesParams, forward_blocks),
                     "KdaPiecesSmem", kda_chain_smem(width), width,
                     {Constant::integer("width", "kWidth", width),
                      Constant::flag("v_first", "kStateVFirst", problem.state_v_first)});
}

int64_t kda_piece_tiles(int64_t key_dim, int64_t value_dim) {
  return ceil_div(value_dim, kChainRows) + ceil_div(key_dim, kChainRows);
}

KdaSummaryBlocks kda_summary_each(const KdaSummary& summary, const KdaSegmentShape& shape) {
  KdaSummaryBlocks blocks;
  const int64_t columns = summary.columns();
  const int64_t values = ceil_div(shape.value_dim, columns);
  const int64_t tiles =
      (summary.numbers().states != 0 ? values : 0) + ceil_div(shape.key_dim, columns);
  const auto of = [&shape](int64_t each) {
    return bounded_product({shape.value_heads, shape.segments, each});
  };
  blocks.forward = of(tiles);
  if (summary.numbers().grads != 0) blocks.back = of(values);
  return blocks;
}

KdaSummaryBlocks kda_summary_blocks(const KdaSummary& summary, const KdaSegmentShape& shape,
                                    bool ranks) {
  if (shape.segments <= 1) return {};
  KdaSummaryBlocks each = kda_summary_each(summary, shape);
  if (!ranks) {  // no E of the last segment, and no M of the first one and the last one
    const int64_t maps = ceil_div(shape.key_dim, summary.columns());
    each.forward -= each.forward / shape.segments + bounded_product({shape.value_heads, maps});
  }
  return {bounded_product({shape.sequences, each.forward}),
          bounded_product({shape.sequences, each.back})};
}

namespace {
int64_t merge_blocks_of(const KdaSegmentNumbers& merge, const KdaSegmentShape& shape,
                        int64_t rows) {
  return bounded_product({shape.sequences, shape.value_heads, ceil_div(shape.value_dim, rows),
                          merge.states + merge.grads});
}
}  // namespace

int64_t kda_merge_rows(const KdaSegmentNumbers& merge, const KdaSegmentShape& shape) {
  const bool few = merge_blocks_of(merge, shape, kLeastMergeRows) <= kFewMergeBlocks;
  return few ? kLeastMergeRows : merge.rows;
}

int64_t kda_merge_blocks(const KdaSegmentNumbers& merge, const KdaSegmentShape& shape) {
  if (shape.segments <= (merge.ranks != 0 ? 1 : 2)) return 0;
  return merge_blocks_of(merge, shape, kda_merge_rows(merge, shape));
}

int64_t kda_compose_blocks(const KdaSegmentShape& shape, int elements, int step, int radix) {
  const int64_t runs = ceil_div(elements, int64_t{step} * radix);
  return bounded_product(
      {runs, shape.sequences, shape.value_heads,
       ceil_div(shape.value_dim, kChainRows) + ceil_div(shape.key_dim, kChainRows)});
}

int64_t kda_end_numbers(const KdaSegmentShape& shape) {
  return shape.segments <= 1 ? 0 : bounded_product({shape.runs(), shape.value_dim, shape.key_dim});
}

int64_t kda_transition_numbers(const KdaSegmentShape& shape) {
  return shape.segments <= 1 ? 0 : bounded_product({shape.runs(), shape.key_dim, shape.key_dim});
}

namespace {

// Says what the walks of kda_summary read and compute.
struct SummaryWalk {
  int64_t row, value_row;  // bytes of a token: q, k, g and beta; and v
  int64_t values, keys;    // tiles of V, and of K
  int64_t block;           // tensor operations for 16 tokens, without the output
};
SummaryWalk summary_walk(const KdaProblem& problem, const KdaSummary& summary, bool back) {
  const KdaSummary::Work work = summary.work(problem, back);
  return {work.row_bytes, int64_t{problem.value_dim} * bytes_of(problem.element),
          ceil_div(problem.value_dim, summary.columns()),
          ceil_div(problem.key_dim, summary.columns()), work.tensor_ops};
}

}  // namespace

Cost kda_segments_cost(const KdaProblem& problem, const KdaSummary& summary,
                       const KdaSegmentNumbers& merge, const KdaSegmentShape& shape, int64_t rows) {
  Cost cost;
  if (shape.segments <= 1) return cost;
  const int64_t k = shape.key_dim, v = shape.value_dim, segments = shape.segments;
  const int64_t heads = shape.sequences * shape.value_heads;
  const int64_t states = summary.numbers().states, grads = summary.numbers().grads;
  const auto share = [&](int64_t each, int64_t walked) {  // of all tokens
    return unsigned_product({rows, shape.value_heads, each, walked}) /
           static_cast<uint64_t>(segments);
  };
  // As many walks of a segment by a block of threads, of `segments` of them a whole sequence; and
  // of those all of V once.
  const auto walks = [&](bool back, int64_t columns, int64_t whole) {
    const SummaryWalk walk = summary_walk(problem, summary, back);
    const int64_t walked = walk.values * whole + walk.keys * columns;
    cost.bytes += share(walk.row, walked) + share(walk.value_row, whole);
    cost.tensor_ops += share(walk.block, walked) / kKdaBlock;
  };
  walks(false, segments - 2, states * (segments - 1));
  walks(true, 0, grads * (segments - 1));
  // Numbers written by the summaries and read by the walks, and twice by the chain.
  const int64_t links = std::max<int64_t>(segments - 2, 0);
  const uint64_t ends = unsigned_product({heads, states + grads, v, k, 4});
  const uint64_t transitions = unsigned_product({heads, k, k, 4, links});
  cost.bytes += 2 * ends * static_cast<uint64_t>(segments - 1) + transitions;
  if (kda_merge_blocks(merge, shape) > 0) {
    const int64_t rows_of_block = kda_merge_rows(merge, shape);
    const auto times = static_cast<uint64_t>((states + grads) * ceil_div(v, rows_of_block));
    cost.bytes += 2 * ends * static_cast<uint64_t>(links) + transitions * times;
    cost.flops += 2 * unsigned_product({heads, states + grads, v, k, k, links});
  }
  return cost;
}

Cost kda_part_cost(const KdaProblem& problem, const KdaSummary& summary,
                   const KdaSegmentShape& shape, const KdaPartWalks& walks) {
  Cost cost;
  const int64_t k = shape.key_dim, v = shape.value_dim, heads = shape.value_heads;
  const auto walk = [&](bool back, int64_t tokens, int64_t with_values, int64_t with_maps) {
    const SummaryWalk each = summary_walk(problem, summary, back);
    const int64_t tiles = with_values * each.values + with_maps * each.keys;
    if (tokens == 0 || tiles == 0) return;
    cost.bytes += unsigned_product({tokens, heads, each.row + with_values * each.value_row});
    cost.bytes +=
        unsigned_product({shape.sequences, heads, 4 * k, with_values * v + with_maps * k});
    cost.tensor_ops += unsigned_product({ceil_div(tokens, kKdaBlock), heads, each.block, tiles});
  };
  walk(false, walks.forth, walks.states, walks.maps);
  walk(true, walks.back, 1, 0);
  // Every link reads a transition for each eight rows, and the numbers of the rows once.
  const int64_t links = walks.links * shape.sequences * heads;
  cost.bytes += unsigned_product({links, 4 * k, k * ceil_div(v, kChainRows) + 2 * v});
  cost.flops += 2 * unsigned_product({links, v, k, k});
  return cost;
}

int kda_choose_segments(const KdaSegmentProblem& question) {
  const int64_t walks = question.forward + question.back, at_once = question.apart ? 1 : walks;
  if (walks == 0 || question.heads <= 0 || question.blocks_at_once <= 0) return 1;
  if (bounded_product({question.heads, at_once, question.value_tiles}) >= question.blocks_at_once) {
    return 1;
  }
  const int64_t most = std::min<int64_t>(kKdaMostSegments, question.tokens / kLeastLength);
  // More sequences than tokens leave none to cut: then a walk takes no time, and nothing is faster.
  if (most < kLeastSegments) return 1;
  const int64_t whole = time_of(question, 1);
  int64_t least = whole;
  for (int64_t n = kLeastSegments; n <= most; ++n) least = std::min(least, time_of(question, n));
  if (static_cast<double>(least) > kKdaWorthwhile * static_cast<double>(whole)) return 1;
  int segments = kLeastSegments;
  while (kAsGood * static_cast<double>(time_of(question, segments)) > static_cast<double>(least)) {
    ++segments;
  }
  return segments;
}

}  // namespace lathe
