// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Tiles of 16-bit elements in shared memory. Columns lie in panels of 64 (128-byte rows), one after
// another; 16-byte chunk c of row r is at chunk c ^ (r & 7) of its row. A last panel of 32 columns
// has 64-byte rows and chunk c ^ ((r >> 1) & 3). Eight rows at one chunk, which is what ldmatrix
// reads, and eight chunks of one row, which is what copies write, then fall into different banks.
#pragma once
#include "common/aligned.cuh"
#include "common/mma.cuh"

namespace lathe {

template <int kRows, int kWidth>
struct Tile {
  static_assert(kWidth % 32 == 0 && kRows % 16 == 0, "panels of 64 or 32 columns, blocks of 16");
  static constexpr int kPanels = kWidth / 64;
  static constexpr bool kHalf = kWidth % 64 != 0;
  static constexpr int kHalfAt = kPanels * kRows * 128;
  static constexpr int kBytes = kRows * kWidth * 2;
  static_assert(kBytes % 1024 == 0, "a tile keeps the alignment of the next one");
};

// A narrow one of its own kind, for scores of 16 queries.
template <int kRows>
struct Tile<kRows, 16> {
  static constexpr int kBytes = kRows * 32;
};

__device__ __forceinline__ int panel_offset(int row, int chunk) {
  return row * 128 + ((chunk ^ (row & 7)) << 4);
}
__device__ __forceinline__ int half_panel_offset(int row, int chunk) {
  return row * 64 + ((chunk ^ ((row >> 1) & 3)) << 4);
}

// 16 columns alone: 32-byte rows.
__device__ __forceinline__ int quarter_panel_offset(int row, int chunk) {
  return row * 32 + ((chunk ^ ((row >> 2) & 1)) << 4);
}
// 16-byte chunk `chunk` of a row of a tile.
template <int kRows, int kWidth>
__device__ __forceinline__ int chunk_offset(int row, int chunk) {
  if constexpr (kWidth == 16) return quarter_panel_offset(row, chunk);
  if constexpr (kWidth == 32) return half_panel_offset(row, chunk);
  return chunk / 8 * kRows * 128 + panel_offset(row, chunk % 8);
}

// A value that all lanes hold, through a shuffle, which the compiler leaves where it stands: what
// is computed from it inside a loop takes no register across the products, which need nearly all.
__device__ __forceinline__ int warp_uniform(int value) {
  return __shfl_sync(0xffffffffu, value, 0);
}
__device__ __forceinline__ int thread_index() {
  return __shfl_xor_sync(0xffffffffu, threadIdx.x ^ 1, 1);
}

// A condition that all lanes hold, told to the compiler: it then need not provide for a warp that
// is divided at the next shuffle or matrix instruction.
__device__ __forceinline__ bool uniform(bool condition) {
  return __any_sync(0xffffffffu, condition);
}

// A TileRow says where a row of global memory begins, in elements from the tensor's first; a row
// that is not there is zeros.
struct TileRow {
  long long offset;
  bool there;
};

// Rows of global memory into a tile, columns from `columns` on being zeros. By all threads of the
// block. Where the threads wait for their loads, one after another, nothing is gained by unrolling.
template <int kRows, int kWidth, int kThreads, int kAlignment = 16, class Element, class RowOf>
__device__ __forceinline__ void copy_rows(unsigned tile, const Element* base, int columns,
                                          const RowOf& row_of) {
  using Shape = Tile<kRows, kWidth>;
  const int thread = thread_index();
  if constexpr (Shape::kPanels > 0) {
    constexpr int kStep = kThreads / 8;
    static_assert(kStep % 8 == 0 && kRows % kStep == 0,
                  "whole rounds, and the swizzle of a lane stays");
    constexpr int kRounds = kAlignment < 4 ? 1 : kRows / kStep;
    const int chunk = thread % 8, first = thread / 8;
    const unsigned to = tile + panel_offset(first, chunk);
#pragma unroll kRounds
    for (int r = 0; r < kRows; r += kStep) {
      const TileRow row = row_of(first + r);
      const Element* from = base + row.offset + chunk * 8;
#pragma unroll
      for (int panel = 0; panel < Shape::kPanels; ++panel) {
        copy_aligned<kAlignment>(to + panel * kRows * 128 + r * 128, from + panel * 64,
                                 row.there && panel * 64 + chunk * 8 < columns);
      }
    }
  }
  if constexpr (Shape::kHalf) {
    constexpr int kStep = kThreads / 4;
    constexpr int kRounds = kAlignment < 4 ? 1 : ceil_div(kRows, kStep);
    const int chunk = thread % 4, first = thread / 4;
    const unsigned to = tile + Shape::kHalfAt + half_panel_offset(first, chunk);
    const int column = Shape::kPanels * 64 + chunk * 8;
#pragma unroll kRounds
    for (int r = 0; r < kRows; r += kStep) {
      if (kRows % kStep == 0 || first + r < kRows) {
        const TileRow row = row_of(first + r);
        copy_aligned<kAlignment>(to + r * 64, base + row.offset + column,
                                 row.there && column < columns);
      }
    }
  }
}
// Row r from base + offset_of(r) where r < rows, zeros elsewhere.
template <int kRows, int kWidth, int kThreads, int kAlignment = 16, class Element, class OffsetOf>
__device__ __forceinline__ void copy_tile(unsigned tile, const Element* base, int rows, int columns,
                                          const OffsetOf& offset_of) {
  copy_rows<kRows, kWidth, kThreads, kAlignment>(tile, base, columns, [&](int r) {
    return TileRow{offset_of(r), r < rows};
  });
}

// A TileReader says where a lane reads of a tile with ldmatrix. `row` < 16 and `chunk` 0 or 1 are
// the lane's row and chunk in a block of 16 rows and 16 columns; other blocks are at multiples of
// 16 rows, and of two chunks, which the swizzle turns into an exclusive or with a constant.
template <int kRows, int kWidth>
struct TileReader {
  unsigned panel = 0, half = 0;

  __device__ __forceinline__ TileReader(unsigned tile, int row, int chunk)
      : panel(tile + panel_offset(row, chunk)),
        half(tile + Tile<kRows, kWidth>::kHalfAt + half_panel_offset(row, chunk)) {}

  // The block at 16 * row_block, 16 * column_block, `bytes` further on.
  __device__ __forceinline__ unsigned at(int row_block, int column_block,
                                         unsigned bytes = 0) const {
    if (column_block < 4 * Tile<kRows, kWidth>::kPanels) {
      return ((panel + bytes) ^ (column_block % 4 * 32)) + column_block / 4 * kRows * 128 +
             row_block * 16 * 128;
    }
    return ((half + bytes) ^ (column_block % 4 * 32)) + row_block * 16 * 64;
  }
};

// 16 columns, one chunk to either side of the swizzle.
template <int kRows>
struct TileReader<kRows, 16> {
  unsigned quarter;

  __device__ __forceinline__ TileReader(unsigned tile, int row, int chunk)
      : quarter(tile + quarter_panel_offset(row, chunk)) {}
  __device__ __forceinline__ unsigned at(int row_block, int) const {
    return quarter + row_block * 16 * 32;
  }
};

// A's blocks and V's, turned: matrices 0 and 1 are rows 0-7 and 8-15.
template <int kRows, int kWidth>
__device__ __forceinline__ TileReader<kRows, kWidth> read_rows_first(unsigned tile, int lane) {
  return {tile, lane & 15, lane >> 4};
}
// K's: matrices 0 and 1 are columns 0-7 and 8-15.
template <int kRows, int kWidth>
__device__ __forceinline__ TileReader<kRows, kWidth> read_columns_first(unsigned tile, int lane) {
  return {tile, (lane & 7) + (lane >> 4) * 8, (lane >> 3) & 1};
}

// Accumulators on their way to memory: the lanes of a quad turn four tiles of 8 columns among
// themselves so that each stores 16 bytes of one tile, a quad 64 bytes of one row.
__device__ __forceinline__ Words<16> turn_in_quad(const unsigned (&word)[4]) {
  const int t = threadIdx.x % 4;
  unsigned even[4], turned[4];
#pragma unroll
  for (int i = 0; i < 4; i += 2) {  // tiles i, i + 1 between lanes t, t ^ 1
    const unsigned sent = t & 1 ? word[i] : word[i + 1];
    const unsigned received = __shfl_xor_sync(0xffffffffu, sent, 1);
    even[i] = t & 1 ? received : word[i];
    even[i + 1] = t & 1 ? word[i + 1] : received;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {  // tiles i, i + 2 between lanes t, t ^ 2
    const unsigned sent = t & 2 ? even[i] : even[i + 2];
    const unsigned received = __shfl_xor_sync(0xffffffffu, sent, 2);
    turned[i] = t & 2 ? received : even[i];
    turned[i + 2] = t & 2 ? even[i + 2] : received;
  }
  return {{turned[0], turned[1], turned[2], turned[3]}};
}

}  // namespace lathe
