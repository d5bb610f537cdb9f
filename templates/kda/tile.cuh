// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Tiles of 16-bit elements in shared memory, as KDA writes and reads them. Columns lie in panels of
// 64 (128-byte rows), one after another; 16-byte chunk c of row r is at chunk c ^ fold(r) of its
// row. Eight rows at one chunk, which is what ldmatrix reads, fall into different banks, and so do
// the rows that lanes write at a time, a quad to a row: two neighbours at four chunks where a lane
// writes 8 columns, four neighbours at two chunks where it writes 4.
#pragma once
#include "common/mma.cuh"

namespace lathe {

template <int kColumns>
__device__ __forceinline__ int fold(int row) {
  static_assert(kColumns == 8 || kColumns == 4, "columns that a lane writes at a time");
  return kColumns == 8 ? (row & 1) << 2 | (row >> 1 & 3) : (row & 3) << 1 | (row >> 2 & 1);
}

template <int kRows, int kWidth, int kColumns = 8>
struct KdaTile {
  static_assert(kWidth % 64 == 0 && kRows % 16 == 0, "panels of 64 columns, blocks of 16 rows");
  static constexpr int kBytes = kRows * kWidth * 2;

  static __device__ __forceinline__ int offset(int row, int chunk) {
    return chunk / 8 * (kRows * 128) + row * 128 + ((chunk % 8 ^ fold<kColumns>(row)) << 4);
  }
  // From the address of chunk 0 or 1 of a row to that of chunk `chunk` more, an even number.
  static __device__ __forceinline__ unsigned at(unsigned address, int chunk) {
    return (address ^ (chunk % 8 << 4)) + chunk / 8 * (kRows * 128);
  }
};

// 16 x 16 elements, 32-byte rows.
struct KdaSquare {
  static constexpr int kBytes = 512;
  static __device__ __forceinline__ int offset(int row, int chunk) {
    return row * 32 + ((chunk ^ (row >> 2 & 1)) << 4);
  }
};

// The row of a lane in a load of four 8x8 matrices: 0-7 and 8-15, then the next chunk; or rows 0-7
// at both chunks, then rows 8-15.
__device__ __forceinline__ int row_of_rows_first(int lane) { return lane & 15; }
__device__ __forceinline__ int chunk_of_rows_first(int lane) { return lane >> 4; }
__device__ __forceinline__ int row_of_chunks_first(int lane) {
  return (lane & 7) + (lane >> 4) * 8;
}
__device__ __forceinline__ int chunk_of_chunks_first(int lane) { return lane >> 3 & 1; }

}  // namespace lathe
