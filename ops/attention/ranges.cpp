// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Computes block ranges and the heuristics that need only lengths. Only non-negative numbers are
// divided, because C++ rounds towards zero and a range towards minus infinity.
#include "ops/attention/ranges.h"

#include <algorithm>

#include "codegen/base/integers.h"

namespace lathe {
namespace {

// Above this the keys and values of one head no longer stay in L2 between its tiles.
constexpr int64_t kCacheBytes = 50ll << 20;
// One row has at most this many partial results, also if the caller asks for more.
constexpr int64_t kMostSplits = 256;
// Fewer key blocks are not worth a second kernel.
constexpr int64_t kFewBlocks = 4;
// A number of splits whose fill is at least this share of the best counts as good; the fewest such
// splits win.
constexpr double kGoodFill = 0.85;

// Returns the share of all waves that has work.
double fill(int64_t blocks, int64_t multiprocessors) {
  const int64_t waves = ceil_div(blocks, multiprocessors);
  return static_cast<double>(blocks) / static_cast<double>(waves * multiprocessors);
}

}  // namespace

int64_t AttentionMask::first_key(int64_t row) const {
  if (window_left < 0) return 0;
  return std::max<int64_t>(0, row + offset() - window_left);
}

int64_t AttentionMask::last_key(int64_t row) const {
  if (window_right < 0) return keys - 1;
  return std::min(keys - 1, row + offset() + window_right);
}

KeyBlocks attention_key_blocks(const AttentionMask& mask, int64_t row_begin, int64_t row_end,
                               int64_t block) {
  // Both bounds grow with the row: the first row has the lowest of each, the last the highest.
  const int64_t lowest_first = mask.first_key(row_begin),
                highest_first = mask.first_key(row_end - 1);
  const int64_t lowest_last = mask.last_key(row_begin), highest_last = mask.last_key(row_end - 1);
  KeyBlocks blocks;
  blocks.all.begin = lowest_first / block;
  const int64_t end = highest_last < 0 ? 0 : highest_last / block + 1;
  blocks.all.end = std::max(end, blocks.all.begin);
  const int64_t full_end = lowest_last < 0 ? 0 : (lowest_last + 1) / block;
  blocks.full.end = std::clamp(full_end, blocks.all.begin, blocks.all.end);
  blocks.full.begin = std::clamp(ceil_div(highest_first, block), blocks.all.begin, blocks.full.end);
  return blocks;
}

BlockRange attention_query_blocks(const AttentionMask& mask, int64_t key_begin, int64_t key_end,
                                  int64_t block) {
  int64_t first = 0, last = mask.queries - 1;
  if (mask.window_right >= 0) {
    first = std::max<int64_t>(0, key_begin - mask.window_right - mask.offset());
  }
  if (mask.window_left >= 0) {
    last = std::min(last, key_end - 1 + mask.window_left - mask.offset());
  }
  const int64_t end = last < 0 ? 0 : last / block + 1;
  return {std::min(first / block, end), end};
}

BlockRange attention_tile_rows(int64_t tile, int64_t tile_rows, int64_t ratio, int64_t queries,
                               bool short_first) {
  const int64_t rows = queries * ratio, missing = ceil_div(rows, tile_rows) * tile_rows - rows;
  const int64_t at = tile * tile_rows - (short_first ? missing : 0);
  const int64_t begin = std::max<int64_t>(at, 0), end = std::min(at + tile_rows, rows);
  return begin >= end ? BlockRange{queries, queries}
                      : BlockRange{begin / ratio, (end - 1) / ratio + 1};
}

bool attention_pack_gqa(int64_t queries, int64_t ratio, int64_t tile_rows, bool lengths_unknown,
                        bool whole_groups) {
  if (ratio <= 1 || (whole_groups && ratio > tile_rows)) return false;
  const int64_t full = whole_groups ? tile_rows / ratio * ratio : tile_rows;
  if (lengths_unknown) return 10 * full >= 9 * tile_rows;
  const auto used = [tile_rows](int64_t rows, int64_t most) {  // share of the tiles' rows
    return static_cast<double>(rows) / static_cast<double>(ceil_div(rows, most) * tile_rows);
  };
  return queries > 0 && used(queries, tile_rows) < 0.9 * used(queries * ratio, full);
}

int64_t attention_num_splits(const SplitProblem& question) {
  const auto& [tiles, multiprocessors, key_blocks, query_blocks, kv_bytes, masked, limit] =
      question;
  if (tiles * 10 >= multiprocessors * 8) {
    const bool worthwhile =
        kv_bytes > kCacheBytes && query_blocks >= 2 * multiprocessors && !masked;
    return worthwhile ? std::min(ceil_div(kv_bytes, kCacheBytes), limit) : 1;
  }
  if (tiles <= 0 || key_blocks <= kFewBlocks) return 1;
  const int64_t most = std::min({limit, multiprocessors, key_blocks});
  double best = 0;
  for (int64_t s = 1; s <= most; ++s) best = std::max(best, fill(tiles * s, multiprocessors));
  int64_t splits = 1;
  while (splits < most && fill(tiles * splits, multiprocessors) < kGoodFill * best) ++splits;
  return splits;
}

std::vector<int64_t> attention_num_splits_by_blocks(int64_t tiles, int64_t multiprocessors,
                                                    int64_t limit) {
  std::vector<int64_t> out(static_cast<size_t>(limit), 1);
  if (tiles * 10 >= multiprocessors * 8) return out;
  std::vector<double> filled(static_cast<size_t>(limit) + 1);  // by blocks; never fewer than splits
  double best = 0;
  size_t splits = 1;
  int64_t places = 0;  // of the waves that so many blocks need
  for (int64_t blocks = 1; blocks <= limit; ++blocks) {
    while (places < tiles * blocks) places += multiprocessors;
    const auto at = static_cast<size_t>(blocks);
    filled[at] = static_cast<double>(tiles * blocks) / static_cast<double>(places);
    if (blocks <= multiprocessors) best = std::max(best, filled[at]);
    // The bar rises with the blocks, so what was below it before still is.
    while (filled[splits] < kGoodFill * best) ++splits;
    if (blocks > kFewBlocks) out[at - 1] = static_cast<int64_t>(splits);
  }
  return out;
}

int64_t attention_clamp_splits(int64_t splits, int64_t key_blocks) {
  return std::clamp<int64_t>(splits, 1, std::clamp<int64_t>(key_blocks, 1, kMostSplits));
}

}  // namespace lathe
