// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Which query blocks a tile of keys visits, and which of them a mask cuts: mask.cuh seen from the
// key. Key j is kept by the rows j - high .. j - low of its sequence. Pure functions.
#pragma once
#include "attention/mask.cuh"

namespace lathe {

// Blocks [begin, end) hold every row that keeps a key of the tile; every pair of the blocks
// [full_begin, full_end) is kept.
struct QueryBlocks {
  int begin, full_begin, full_end, end;

  __device__ __forceinline__ bool full(int block) const {
    return block >= full_begin && block < full_end;
  }
};

// Returns the blocks of queries that see the keys first..first + kTileN - 1 of a sequence with
// `rows` queries.
template <int kTileM, int kTileN>
__device__ __forceinline__ QueryBlocks query_blocks(const KeyWindow& window, int rows, int first) {
  const int last = minimum(first + kTileN, window.keys) - 1;
  QueryBlocks blocks = {0, 0, 0, 0};
  if (first > last || rows <= 0) return blocks;
  const long long low = static_cast<long long>(first) - window.high;
  const long long high = static_cast<long long>(last) - window.low;
  blocks.begin = low < 0 ? 0 : low >= rows ? rows / kTileM + 1 : static_cast<int>(low) / kTileM;
  blocks.end = high < 0 ? 0 : (high >= rows ? rows - 1 : static_cast<int>(high)) / kTileM + 1;
  blocks.begin = minimum(blocks.begin, blocks.end);
  blocks.full_begin = blocks.full_end = blocks.end;
  // Beyond the last key nothing is kept: such a tile is cut in every block.
  if (first + kTileN > window.keys) return blocks;
  const long long full_low = static_cast<long long>(last) - window.high;
  const long long full_high = static_cast<long long>(first) - window.low;
  const int from = full_low < 0 ? 0 : full_low >= rows ? rows : static_cast<int>(full_low);
  const int to = full_high < 0 ? 0 : full_high >= rows ? rows : static_cast<int>(full_high) + 1;
  blocks.full_begin = clamp(ceil_div(from, kTileM), blocks.begin, blocks.end);
  blocks.full_end = clamp(to / kTileM, blocks.full_begin, blocks.end);
  return blocks;
}

// The rows of a block that keep one key, counted from `row` and cut to -1..kTileM: from lowest to
// highest, none if lowest > highest.
struct QueryColumns {
  int lowest, highest;
};
template <bool kLocal, int kTileM>
__device__ __forceinline__ QueryColumns query_columns(const KeyWindow& window, int rows, int key,
                                                      int row) {
  if (key >= window.keys) return {0, -1};
  QueryColumns columns = {0, minimum(rows - 1 - row, kTileM)};
  if constexpr (kLocal) {
    const long long at = static_cast<long long>(key) - row;
    columns.lowest = clamp(saturate(at - window.high), 0, kTileM);
    columns.highest = clamp(saturate(at - window.low), -1, columns.highest);
  }
  return columns;
}

}  // namespace lathe
