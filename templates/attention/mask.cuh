// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Which keys a row keeps, and which key blocks a tile of rows must visit. Pure functions.
#pragma once
#include "common/math.cuh"

namespace lathe {

// Row i keeps key j iff low <= j - i <= high and 0 <= j < keys. Differences of positions cannot
// overflow; sums with them are taken in 64 bits.
struct KeyWindow {
  int keys, low, high;
};

__device__ __forceinline__ int saturate(long long value) {
  constexpr int kMost = 0x7fffffff;
  return value > kMost ? kMost : value < -kMost ? -kMost : static_cast<int>(value);
}

// `off` = keys - rows: both diagonals end in the last row and the last key.
__device__ __forceinline__ KeyWindow key_window(int rows, int keys, int left, int right) {
  const long long off = static_cast<long long>(keys) - rows;
  return {keys, left < 0 ? -0x7fffffff : saturate(off - left),
          right < 0 ? 0x7fffffff : saturate(off + right)};
}
__device__ __forceinline__ long long first_key(const KeyWindow& window, int row) {
  const long long key = static_cast<long long>(row) + window.low;
  return key < 0 ? 0 : key;
}
__device__ __forceinline__ long long last_key(const KeyWindow& window, int row) {
  const long long key = static_cast<long long>(row) + window.high;
  return key > window.keys - 1 ? window.keys - 1 : key;
}

// A window of another kind has first_key and last_key of its own.
//
// Blocks [begin, end) hold every key that a row of the tile keeps. From `end` down to `right` both
// masks are needed, from `right` to `left` none, from `left` to `begin` the left one.
struct BlockRange {
  int begin, left, right, end;
};

__device__ __forceinline__ int clamp(int value, int low, int high) {
  return minimum(maximum(value, low), high);
}

// Returns the blocks that the rows first..last of one tile visit.
template <int kTileN, class Window>
__device__ __forceinline__ BlockRange block_range(const Window& window, int first, int last) {
  const long long high = last_key(window, last), full = last_key(window, first);
  const long long low = first_key(window, first), least = first_key(window, last);
  BlockRange range;
  // No key of the sequence is past `keys`: what is, is cut before it is divided.
  range.begin = static_cast<int>(low > window.keys ? window.keys : low) / kTileN;
  range.end = maximum(high < 0 ? 0 : static_cast<int>(high) / kTileN + 1, range.begin);
  const int full_end = full < 0 ? 0 : static_cast<int>(full + 1) / kTileN;
  const long long full_begin = (least + kTileN - 1) / kTileN;
  range.right = clamp(full_end, range.begin, range.end);
  range.left = clamp(saturate(full_begin), range.begin, range.right);
  return range;
}

// The kept columns of a block that begins at key `key`: from lowest to highest, cut to -1..kTileN.
template <int kTileN, class Window>
__device__ __forceinline__ int highest_column(const Window& window, int row, int key) {
  const long long column = last_key(window, row) - key;
  return column < -1 ? -1 : column > kTileN ? kTileN : static_cast<int>(column);
}
template <int kTileN, class Window>
__device__ __forceinline__ int lowest_column(const Window& window, int row, int key) {
  const long long column = first_key(window, row) - key;
  return column < -1 ? -1 : column > kTileN ? kTileN : static_cast<int>(column);
}

}  // namespace lathe
