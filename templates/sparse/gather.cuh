// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Rows from anywhere in memory into a tile of shared memory (attention/tile.cuh), 16 bytes at a
// time: eight lanes read 128 neighbouring bytes of a row. What is not there becomes zeros and is
// not read.
#pragma once
#include "attention/tile.cuh"

namespace lathe {

// A row of two tensors side by side: columns below `split` are of `first`, those from there up to
// `end` of `second`, which counts them from its own beginning. `end` 0: a row that is not there.
template <class Element>
struct JoinedRow {
  const Element* first;
  const Element* second;
  int split, end;
};

// row_of(row) is a JoinedRow: what a row needs is found once for all its panels. By all threads of
// the block.
template <int kRows, int kWidth, int kThreads, class RowOf>
__device__ __forceinline__ void gather_rows(unsigned tile, const RowOf& row_of) {
  static_assert(kWidth % 64 == 0, "whole panels");
  constexpr int kSlots = kThreads / 8, kPanels = kWidth / 64;
  constexpr int kParts = kSlots >= 2 * kRows ? kSlots / kRows : 1;  // that share a row's panels
  constexpr int kStep = kParts > 1 ? kRows : kSlots;
  static_assert(kParts == 1 || kSlots % kRows == 0, "every part has its panels");
  const int chunk = static_cast<int>(threadIdx.x % 8), slot = static_cast<int>(threadIdx.x / 8);
  const int part = kParts > 1 ? slot / kRows : 0;
#pragma unroll 1
  for (int row = kParts > 1 ? slot % kRows : slot; row < kRows; row += kStep) {
    const auto from = row_of(row);
    // The address is that of column 0, even where there is none: one addition then serves both.
    const auto* second = from.second - from.split;
    const unsigned to = tile + panel_offset(row, chunk);
#pragma unroll
    for (int i = 0; i < ceil_div(kPanels, kParts); ++i) {
      const int panel = i * kParts + part, column = 64 * panel + 8 * chunk;
      if (kPanels % kParts == 0 || panel < kPanels) {
        copy_async(to + panel * (kRows * 128), (column < from.split ? from.first : second) + column,
                   column < from.end);
      }
    }
  }
}

}  // namespace lathe
