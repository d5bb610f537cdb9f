// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Operands of attention's products (common/operand.cuh) in its tiles, and accumulators that become
// operands.
#pragma once
#include "attention/tile.cuh"
#include "common/operand.cuh"

namespace lathe {

// Planes lie one after another.
template <class Element, int kRows, int kWidth>
__host__ __device__ constexpr int tile_bytes() {
  return Operand<Element>::kPlanes * Tile<kRows, kWidth>::kBytes;
}

template <class Element, int kRows, int kWidth>
__device__ __forceinline__ void load_fragment(Fragment<Element>& to,
                                              const TileReader<kRows, kWidth>& reader,
                                              int row_block, int column_block) {
#pragma unroll
  for (int plane = 0; plane < Operand<Element>::kPlanes; ++plane) {
    load_matrix(to.word[plane],
                reader.at(row_block, column_block) + plane * Tile<kRows, kWidth>::kBytes);
  }
}
template <class Element, int kRows, int kWidth>
__device__ __forceinline__ void load_fragment_transposed(Fragment<Element>& to,
                                                         const TileReader<kRows, kWidth>& reader,
                                                         int row_block, int column_block) {
#pragma unroll
  for (int plane = 0; plane < Operand<Element>::kPlanes; ++plane) {
    load_matrix_transposed(
        to.word[plane], reader.at(row_block, column_block) + plane * Tile<kRows, kWidth>::kBytes);
  }
}

// Accumulators of 16 rows and kTiles * 8 columns that become operand A of the next product, as they
// lie: two neighbouring tiles are a fragment. Rounded at once to a 16-bit element, but float32 ones
// stay whole until they are used, which takes fewer registers than their planes.
template <class Element, int kTiles>
struct Accumulated {
  unsigned word[kTiles / 2][4];

  // Columns 2t, 2t + 1 of tile n; `half` 1: of row g + 8.
  __device__ __forceinline__ void put(int n, int half, float first, float second) {
    word[n / 2][n % 2 * 2 + half] = pack_pair(first, second, Element{});
  }
  __device__ __forceinline__ Fragment<Element> operand(int j) const {
    return {{{word[j][0], word[j][1], word[j][2], word[j][3]}}};
  }
};
template <int kTiles>
struct Accumulated<f32, kTiles> {
  float value[kTiles][2][2];

  __device__ __forceinline__ void put(int n, int half, float first, float second) {
    value[n][half][0] = first, value[n][half][1] = second;
  }
  __device__ __forceinline__ Fragment<f32> operand(int j) const {
    Fragment<f32> result;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      unsigned plane[3];
      const float(&pair)[2] = value[2 * j + i / 2][i % 2];
      split_pair(pair[0], pair[1], plane);
      result.word[0][i] = plane[0], result.word[1][i] = plane[1], result.word[2][i] = plane[2];
    }
    return result;
  }
};

// sum += the rows of A, in two halves, gathered and rounded as a column of ones of B would be.
__device__ __forceinline__ void add_row_sums(float (&sum)[2], const Fragment<f32>& a) {
  constexpr unsigned kOnes = 0x3f803f80u;
  float product[4] = {};
#pragma unroll
  for (int i = 0; i < 6; ++i) {
    if (kTermB[i] == 0) multiply_add(product, a.word[kTermA[i]], kOnes, kOnes, bf16{});
  }
  sum[0] = __fadd_rn(sum[0], product[0]), sum[1] = __fadd_rn(sum[1], product[2]);
}

}  // namespace lathe
