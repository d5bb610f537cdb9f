// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Rows from anywhere in memory into a tile of shared memory (attention/tile.cuh), 16 bytes at a
// time: eight lanes read 128 neighbouring bytes of a row. What is not there becomes zeros and is
// not read.
#pragma once
#include "attention/tile.cuh"

namespace lathe {

// `from(row, column)` is the address of 8 elements, or null. By all threads of the block.
template <int kRows, int kWidth, int kThreads, class From>
__device__ __forceinline__ void gather_tile(unsigned tile, const void* somewhere,
                                            const From& from) {
  static_assert(kWidth % 64 == 0, "whole panels");
  constexpr int kAtOnce = kThreads / 8, kPieces = kRows * (kWidth / 64);
  const int chunk = static_cast<int>(threadIdx.x % 8), first = static_cast<int>(threadIdx.x / 8);
#pragma unroll
  for (int i = 0; i < ceil_div(kPieces, kAtOnce); ++i) {
    const int piece = first + i * kAtOnce, row = piece % kRows, panel = piece / kRows;
    if (kPieces % kAtOnce == 0 || piece < kPieces) {
      const void* address = from(row, 64 * panel + 8 * chunk);
      copy_async(tile + panel * (kRows * 128) + panel_offset(row, chunk),
                 address == nullptr ? somewhere : address, address != nullptr);
    }
  }
}

}  // namespace lathe
