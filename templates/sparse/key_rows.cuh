// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The products of sparse attention's backward whose columns are shared out among all warps, and
// where the float32 rows of keys go that they make.
//
// A warp has the same eight columns of every panel of 64 (or sixteen, where there are four warps):
// which panel is then a constant of its address, and it needs no row of the other operand twice.
#pragma once
#include "attention/operand.cuh"
#include "common/memory_sums.cuh"

namespace lathe {

// The warp's columns of a tile, rows being summed over: operand B.
template <int kRows, int kChunks>
struct ColumnReader {
  static constexpr int kLoads = kRows / 16 * kChunks / 2;
  static_assert(kRows / 16 * kChunks % 2 == 0, "four matrices to a load");
  unsigned address;

  __device__ __forceinline__ ColumnReader(unsigned tile, int warp, int lane)
      : address(tile + (kChunks == 1 ? panel_offset(lane, warp)
                                     : panel_offset(lane & 15, 2 * warp + (lane >> 4)))) {}
  // Two words for each 16 rows and each chunk of 8 columns of a panel.
  __device__ __forceinline__ void load(int panel, unsigned (&words)[kRows / 16][kChunks][2]) const {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      unsigned four[4];
      load_matrix_transposed(four,
                             address + panel * (kRows * 128) + i * (kChunks == 1 ? 32 : 16) * 128);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if constexpr (kChunks == 1) {
          words[2 * i + j / 2][0][j % 2] = four[j];
        } else {
          words[i][j / 2][j % 2] = four[j];
        }
      }
    }
  }
};

// sums += a b over the kSteps * 16 rows of b.
template <class Element, int kBlocks, int kSteps, int kChunks>
__device__ __forceinline__ void multiply_columns(float (&sums)[kBlocks][kChunks][4],
                                                 const Fragment<Element> (&a)[kBlocks][kSteps],
                                                 const unsigned (&b)[kSteps][kChunks][2]) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        multiply_add(sums[block][c], a[block][step].word[0], b[step][c][0], b[step][c][1],
                     Element{});
      }
    }
  }
}

// KeyRows says where the rows of kBlocks * 16 keys go, of which a lane has rows g and g + 8 of each
// 16. kStored: they are stored. Otherwise they are added to what other blocks add to, in no order,
// by whole sectors: a quad has one of a row, and where only single floats can be added, lanes with
// neighbouring rows first exchange half of them, so that eight lanes have eight floats of one row,
// and then of the other.
template <int kBlocks, bool kStored>
struct KeyRows {
  static constexpr bool kTurned = !kStored && !kVectorSums;
  static constexpr int kRows = kTurned ? 2 : 1;
  float* row[kBlocks][2][kRows];
  unsigned there = 0;  // bits of the rows that go somewhere

  // Row r of the keys begins at row_begin(r), for r < count, which is not 0.
  template <class RowBegin>
  __device__ __forceinline__ KeyRows(int lane, int count, const RowBegin& row_begin) {
    const int g = lane / 4, column = lane % 4 * 2 + (kTurned ? g % 2 : 0);
#pragma unroll
    for (int i = 0; i < 2 * kBlocks * kRows; ++i) {
      const int lane_row = 8 * (i / kRows) + (kTurned ? (g & ~1) + i % kRows : g);
      row[i / kRows / 2][i / kRows % 2][i % kRows] =
          row_begin(minimum(lane_row, count - 1)) + column;
      there |= lane_row < count ? 1u << i : 0u;
    }
  }
  // 8 columns from `column` on, which is a constant. kWhole: all rows go somewhere; with a
  // condition each addition is a branch.
  template <bool kWhole>
  __device__ __forceinline__ void put(int lane, int block, int column,
                                      const float (&sum)[4]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float* const* to = row[block][half];
      const int bit = (2 * block + half) * kRows;
      const float first = sum[2 * half], second = sum[2 * half + 1];
      if constexpr (kTurned) {
        const bool odd = lane & 4;
        const float received = __shfl_xor_sync(0xffffffffu, odd ? first : second, 4);
        if (kWhole || (there & 1u << bit)) add_float(to[0] + column, odd ? received : first);
        if (kWhole || (there & 2u << bit)) add_float(to[1] + column, odd ? second : received);
      } else if (kWhole || (there & 1u << bit)) {
        const float pair[2] = {first, second};
        if constexpr (kStored) store_global(to[0] + column, pack<f32, 8>(pair));
        if constexpr (!kStored) add_pair(to[0] + column, first, second);
      }
    }
  }
};

}  // namespace lathe
