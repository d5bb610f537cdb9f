// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover block ranges against masks of single pairs, and the heuristics against worked
// values.
#include "ops/attention/ranges.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

using namespace lathe;

namespace {

// The definition: key j of row i, counted from the bottom right corner.
bool kept(const AttentionMask& mask, int64_t i, int64_t j) {
  const int64_t beyond = j - (i + mask.keys - mask.queries);  // keys after the diagonal
  return j >= 0 && j < mask.keys && (mask.window_left < 0 || -beyond <= mask.window_left) &&
         (mask.window_right < 0 || beyond <= mask.window_right);
}

// Counts the kept pairs of rows [i0, i1) with keys [j0, j1).
int64_t count(const AttentionMask& mask, int64_t i0, int64_t i1, int64_t j0, int64_t j1) {
  int64_t sum = 0;
  for (int64_t i = i0; i < i1; ++i) {
    for (int64_t j = j0; j < j1; ++j) sum += kept(mask, i, j);
  }
  return sum;
}

bool holds(const BlockRange& range, int64_t block) {
  return block >= range.begin && block < range.end;
}

AttentionMask draw(std::mt19937& random) {
  const auto below = [&random](int64_t bound) {
    return static_cast<int64_t>(random() % static_cast<uint32_t>(bound));
  };
  const auto window = [&] {
    switch (below(5)) {
      case 0:
      case 1:
        return int64_t{-1};
      case 2:
        return int64_t{0};
      case 3:
        return below(6);
      default:
        return below(60);
    }
  };
  AttentionMask mask;
  mask.queries = below(40);
  mask.keys = below(8) == 0 ? 0 : below(60);
  mask.window_left = window();
  mask.window_right = window();
  return mask;
}

// Returns false instead of a CHECK per pair, of which there would be millions.
bool key_blocks_agree(const AttentionMask& mask, const BlockRange& rows, int64_t block) {
  const KeyBlocks found = attention_key_blocks(mask, rows.begin, rows.end, block);
  bool ok = found.all.begin <= found.full.begin && found.full.begin <= found.full.end &&
            found.full.end <= found.all.end && found.all.begin >= 0 &&
            found.all.end <= (mask.keys + block - 1) / block;
  // Where the first row keeps a key, the rows' keys are a run and no block is visited in vain.
  const bool tight = count(mask, rows.begin, rows.begin + 1, 0, mask.keys) > 0;
  for (int64_t n = 0; n * block < mask.keys; ++n) {
    const int64_t j0 = n * block, j1 = j0 + block;
    const int64_t pairs = count(mask, rows.begin, rows.end, j0, j1);
    if (pairs > 0) ok = ok && holds(found.all, n);
    if (pairs == 0 && tight) ok = ok && !holds(found.all, n);
    ok = ok && holds(found.full, n) == (pairs == rows.size() * block);
    if (!holds(found.left(), n)) continue;
    AttentionMask left_alone = mask;
    left_alone.window_right = -1;
    ok = ok && j1 <= mask.keys && count(left_alone, rows.begin, rows.end, j0, j1) == pairs;
  }
  return ok;
}

bool query_blocks_agree(const AttentionMask& mask, int64_t j0, int64_t j1, int64_t block) {
  const BlockRange found = attention_query_blocks(mask, j0, j1, block);
  bool ok = found.begin >= 0 && found.begin <= found.end;
  for (int64_t m = 0; m * block < mask.queries; ++m) {
    const int64_t i1 = std::min((m + 1) * block, mask.queries);
    ok = ok && holds(found, m) == (count(mask, m * block, i1, j0, j1) > 0);
  }
  return ok;
}

}  // namespace

TEST_CASE("attention ranges: key blocks are those of the pairs' mask") {
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    const AttentionMask mask = draw(random);
    const int64_t rows = 1 + static_cast<int64_t>(random() % 17), block = 1 + random() % 17;
    const int64_t ratio = 1 + random() % 4;
    for (int64_t tile = 0; tile * rows < mask.queries * ratio; ++tile) {
      const BlockRange own = attention_tile_rows(tile, rows, ratio, mask.queries);
      CAPTURE(mask.queries);
      CAPTURE(mask.keys);
      CAPTURE(mask.window_left);
      CAPTURE(mask.window_right);
      CAPTURE(own.begin);
      CAPTURE(own.end);
      CAPTURE(block);
      REQUIRE((own.begin < own.end && own.end <= mask.queries));
      REQUIRE(key_blocks_agree(mask, own, block));
    }
  }
}

TEST_CASE("attention ranges: query blocks are those of the pairs' mask") {
  std::mt19937 random(2);
  for (int round = 0; round < 20000; ++round) {
    const AttentionMask mask = draw(random);
    const int64_t rows = 1 + random() % 17, block = 1 + random() % 17;
    for (int64_t n0 = 0; n0 < mask.keys; n0 += block) {
      CAPTURE(mask.queries);
      CAPTURE(mask.keys);
      CAPTURE(mask.window_left);
      CAPTURE(mask.window_right);
      CAPTURE(n0);
      CAPTURE(block);
      REQUIRE(query_blocks_agree(mask, n0, std::min(n0 + block, mask.keys), rows));
    }
  }
}

TEST_CASE("attention ranges: cases by hand") {
  // Causal, square: the second tile of 128 rows sees 4 blocks of 64 keys, the last 2 of them cut.
  KeyBlocks blocks = attention_key_blocks({256, 256, -1, 0}, 128, 256, 64);
  CHECK(blocks.all == BlockRange{0, 4});
  CHECK(blocks.full == BlockRange{0, 2});
  // A window narrower than a block: whatever is visited is cut.
  blocks = attention_key_blocks({256, 256, 3, 0}, 128, 256, 64);
  CHECK(blocks.all == BlockRange{1, 4});
  CHECK(blocks.full.size() == 0);
  // More queries than keys: the rows above the diagonal keep nothing, nor do any without keys.
  CHECK(attention_key_blocks({300, 44, -1, 0}, 0, 128, 64).all.size() == 0);
  CHECK(attention_key_blocks({300, 0, -1, -1}, 0, 128, 64).all.size() == 0);
  CHECK(attention_key_blocks({300, 44, -1, 0}, 256, 300, 64).all == BlockRange{0, 1});
  // A window of the largest int does not overflow.
  const int64_t most = 0x7fffffff;
  CHECK(attention_key_blocks({most, most, most, most}, most - 128, most, 64).all ==
        BlockRange{0, most / 64 + 1});
}

TEST_CASE("attention ranges: rows of a tile with packed heads") {
  CHECK(attention_tile_rows(0, 128, 8, 20) == BlockRange{0, 16});
  CHECK(attention_tile_rows(1, 128, 8, 20) == BlockRange{16, 20});
  CHECK(attention_tile_rows(2, 128, 8, 20).size() == 0);
  CHECK(attention_tile_rows(1, 128, 3, 100) == BlockRange{42, 86});  // both ends within a query
  CHECK(attention_tile_rows(1, 128, 1, 200) == BlockRange{128, 200});
  // With the short tile first.
  CHECK(attention_tile_rows(0, 128, 1, 200, true) == BlockRange{0, 72});
  CHECK(attention_tile_rows(1, 128, 1, 200, true) == BlockRange{72, 200});
  CHECK(attention_tile_rows(2, 128, 1, 200, true).size() == 0);
  CHECK(attention_tile_rows(0, 128, 1, 256, true) == BlockRange{0, 128});
  CHECK(attention_tile_rows(0, 125, 5, 30, true) == BlockRange{0, 5});
}

TEST_CASE("attention heuristics: packing of heads") {
  struct Row {
    int64_t queries, ratio;
    bool packed;
  };
  for (const Row& row : std::vector<Row>{{1, 8, true},
                                         {1, 1, false},
                                         {17, 4, true},
                                         {120, 8, false},
                                         {128, 8, false},
                                         {130, 8, true},
                                         {200, 2, false},
                                         {4096, 8, false},
                                         {122, 64, false},  // 0.95 of the rows against all
                                         {0, 8, false}}) {
    CAPTURE(row.queries);
    CAPTURE(row.ratio);
    CHECK(attention_pack_gqa(row.queries, row.ratio, 128, false) == row.packed);
    CHECK(attention_pack_gqa(row.queries, row.ratio, 128, true) == (row.ratio > 1));
    if (128 % row.ratio != 0) continue;
    CHECK(attention_pack_gqa(row.queries, row.ratio, 128, false, true) == row.packed);
  }
  // Whole groups: of 100 heads a tile has one, of 42 three, of more than its rows none.
  CHECK_FALSE(attention_pack_gqa(4096, 100, 128, true, true));
  CHECK(attention_pack_gqa(4096, 42, 128, true, true));
  CHECK_FALSE(attention_pack_gqa(1, 129, 128, true, true));
  CHECK_FALSE(attention_pack_gqa(1, 129, 128, false, true));
  CHECK(attention_pack_gqa(1, 100, 128, false, true));
  CHECK_FALSE(attention_pack_gqa(120, 100, 128, false, true));
}

TEST_CASE("attention heuristics: number of splits") {
  struct Row {
    int64_t tiles, blocks, splits;
  };
  for (const Row& row : std::vector<Row>{{1, 1024, 109},
                                         {8, 64, 15},
                                         {8, 4, 1},
                                         {16, 256, 8},
                                         {32, 128, 4},
                                         {40, 16, 3},
                                         {64, 32, 2},
                                         {100, 32, 5},
                                         {132, 32, 1},
                                         {0, 32, 1}}) {
    CAPTURE(row.tiles);
    CAPTURE(row.blocks);
    SplitProblem tuning_key;
    tuning_key.tiles = row.tiles;
    tuning_key.multiprocessors = 132;
    tuning_key.key_blocks = row.blocks;
    CHECK(attention_num_splits(tuning_key) == row.splits);
  }
  // A full device splits only for the sake of L2: long keys, many tiles that share them, no mask.
  SplitProblem tuning_key{264, 132, 8192, 264, 120ll << 20, false, 128};
  CHECK(attention_num_splits(tuning_key) == 3);
  tuning_key.limit = 2;
  CHECK(attention_num_splits(tuning_key) == 2);
  tuning_key.masked = true;
  CHECK(attention_num_splits(tuning_key) == 1);
  tuning_key.masked = false, tuning_key.query_blocks = 263;
  CHECK(attention_num_splits(tuning_key) == 1);
  tuning_key.query_blocks = 264, tuning_key.kv_bytes = 50ll << 20;
  CHECK(attention_num_splits(tuning_key) == 1);

  // The table of all block counts is the same function.
  for (const int64_t multiprocessors : {1, 5, 20, 108, 132}) {
    for (int64_t tiles = 1; tiles <= multiprocessors; ++tiles) {
      const auto by_blocks = attention_num_splits_by_blocks(tiles, multiprocessors, 150);
      for (int64_t blocks = 1; blocks <= 150; ++blocks) {
        const SplitProblem each{tiles, multiprocessors, blocks, 1, 0, false, 150};
        REQUIRE(by_blocks.at(static_cast<size_t>(blocks - 1)) == attention_num_splits(each));
      }
    }
  }

  CHECK(attention_clamp_splits(0, 9) == 1);
  CHECK(attention_clamp_splits(-3, 9) == 1);
  CHECK(attention_clamp_splits(4, 9) == 4);
  CHECK(attention_clamp_splits(12, 9) == 9);
  CHECK(attention_clamp_splits(1000, 1000) == 256);
  CHECK(attention_clamp_splits(2, 0) == 1);
}
