// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Counts what attention must at least do, by looking at every pair of a query row and a key: for
// figures and limits. Nothing is shared with the ranges that the kernels and the host compute.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ref {

// The mask of one sequence, as in attention.h.
struct PairMask {
  int64_t queries = 0, keys = 0;
  bool causal = false;
  int64_t window_left = -1, window_right = -1;

  bool kept(int64_t row, int64_t key) const {
    const int64_t ahead = key - (row + keys - queries), right = causal ? 0 : window_right;
    return (window_left < 0 || -ahead <= window_left) && (right < 0 || ahead <= right);
  }
};

// Counts pairs (row, key) that are kept.
inline int64_t kept_pairs(const PairMask& mask) {
  int64_t count = 0;
  for (int64_t row = 0; row < mask.queries; ++row) {
    for (int64_t key = 0; key < mask.keys; ++key) count += mask.kept(row, key);
  }
  return count;
}

// Counts tiles of `rows` by `keys` with at least one such pair. `group` heads are rows of one tile:
// tile row r is query r / group.
inline int64_t visible_tiles(const PairMask& mask, int64_t rows, int64_t keys, int64_t group = 1) {
  const auto visible = [&](int64_t row, int64_t key) {
    const int64_t last_row = std::min(row + rows, mask.queries * group);
    for (int64_t r = row / group; r <= (last_row - 1) / group; ++r) {
      for (int64_t k = key; k < std::min(key + keys, mask.keys); ++k) {
        if (mask.kept(r, k)) return true;
      }
    }
    return false;
  };
  int64_t count = 0;
  for (int64_t row = 0; row < mask.queries * group; row += rows) {
    for (int64_t key = 0; key < mask.keys; key += keys) count += visible(row, key);
  }
  return count;
}

}  // namespace ref
