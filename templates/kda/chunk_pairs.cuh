// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The pairs of tokens of a chunk in the backward of KDA. Those of different blocks of 16 are
// chained from block to block, as states are; those of one block go by the levels of kda/block.cuh.
#pragma once
#include "kda/chunk_work.cuh"

namespace lathe {

template <class Config>
struct KdaChunkPairs : KdaChunkWork<Config> {
  using Work = KdaChunkWork<Config>;
  using typename Work::Element;
  using typename Work::Own;
  using typename Work::Smem;
  using typename Work::Sums;
  using typename Work::Tile;
  using Work::block, Work::g, Work::half, Work::in, Work::lane, Work::shared, Work::t;
  using Work::Work;

  __device__ __forceinline__ void chain_rows(Sums& sums, int scores) const;
  __device__ __forceinline__ void chain_columns(Sums& sums) const;
  template <int kHalf>
  __device__ __forceinline__ void add_level(const Own& own, const KdaProducts<8>& products,
                                            const float (&beta)[2], Sums& queries, Sums& rows,
                                            Sums& columns) const;
};

// Rows of the warp's block with the blocks before it, from the state at the chunk's start on.
template <class Config>
__device__ __forceinline__ void KdaChunkPairs<Config>::chain_rows(Sums& sums, int scores) const {
  const int square = KdaSquare::offset(row_of_rows_first(lane), chunk_of_rows_first(lane));
  const unsigned columns =
      shared + Smem::kKg + Tile::offset(row_of_rows_first(lane), chunk_of_rows_first(lane));
#pragma unroll 1
  for (int c = 0; c < block; ++c) {
    unsigned a[4];
    load_matrix(a, shared + scores + lower_square(block, c) + square);
#pragma unroll
    for (int n = 0; n < 4; n += 2) {
      unsigned b[4];
      load_matrix_transposed(b, Tile::at(columns + c * 16 * 128, 4 * half + n));
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float decay[2];
        load_shared(shared + Smem::kDecay + 256 * c + 4 * (32 * half + 8 * (n + i) + 2 * t),
                    decay[0], decay[1]);
#pragma unroll
        for (int e = 0; e < 4; ++e) sums.x[n + i][e] *= decay[e % 2];
        multiply_add(sums.x[n + i], a, b[2 * i], b[2 * i + 1], Element{});
      }
    }
  }
}

// Columns of the warp's block with the blocks behind it, from the state at the chunk's end on.
template <class Config>
__device__ __forceinline__ void KdaChunkPairs<Config>::chain_columns(Sums& sums) const {
  const int square = KdaSquare::offset(row_of_chunks_first(lane), chunk_of_chunks_first(lane));
  const unsigned rows = shared + Tile::offset(row_of_rows_first(lane), chunk_of_rows_first(lane));
#pragma unroll 1
  for (int r = 3; r > block; --r) {
    unsigned out[4], value[4];
    load_matrix_transposed(out, shared + Smem::kOutScores + lower_square(r, block) + square);
    load_matrix_transposed(value, shared + Smem::kValueScores + lower_square(r, block) + square);
#pragma unroll
    for (int n = 0; n < 4; n += 2) {
      unsigned q[4], k[4];
      const unsigned from = Tile::at(rows + r * 16 * 128, 4 * half + n);
      load_matrix_transposed(q, from + Smem::kQg);
      load_matrix_transposed(k, from + Smem::kKe);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float decay[2];
        load_shared(shared + Smem::kDecay + 256 * r + 4 * (32 * half + 8 * (n + i) + 2 * t),
                    decay[0], decay[1]);
#pragma unroll
        for (int e = 0; e < 4; ++e) sums.x[n + i][e] *= decay[e % 2];
        multiply_add(sums.x[n + i], out, q[2 * i], q[2 * i + 1], Element{});
        multiply_add(sums.x[n + i], value, k[2 * i], k[2 * i + 1], Element{});
      }
    }
  }
}

// Words of a square of scores that pair rows of the upper half of a group of 2 kHalf tokens with
// columns of the lower: words 0 and 3 of an operand, or word `apart` alone where the halves are 8.
template <int kHalf>
__device__ __forceinline__ void keep_level(unsigned (&word)[4], int row, int first_column,
                                           bool transposed, int apart) {
  if constexpr (kHalf == 8) {
#pragma unroll
    for (int i = 0; i < 4; ++i) word[i] = i == apart ? word[i] : 0u;
    return;
  }
  unsigned mask = 0;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int upper = transposed ? first_column + i : row;
    const int lower = transposed ? row : first_column + i;
    const bool kept = (upper & kHalf) != 0 && (lower & kHalf) == 0 && (upper ^ lower) < 2 * kHalf;
    mask |= kept ? 0xffffu << 16 * i : 0u;
  }
  word[0] &= mask, word[3] &= mask, word[1] = word[2] = 0u;
}

// The pairs of the warp's own block that part at kHalf. The second operand is turned in registers.
template <class Config>
template <int kHalf>
__device__ __forceinline__ void KdaChunkPairs<Config>::add_level(const Own& own,
                                                                 const KdaProducts<8>& products,
                                                                 const float (&beta)[2],
                                                                 Sums& queries, Sums& rows,
                                                                 Sums& columns) const {
  const unsigned square = shared + lower_square(block, block);
  const int by_rows = KdaSquare::offset(row_of_rows_first(lane), chunk_of_rows_first(lane));
  const int by_chunks = KdaSquare::offset(row_of_chunks_first(lane), chunk_of_chunks_first(lane));
  unsigned out[4], value[4], out_turned[4], value_turned[4];
  load_matrix(out, square + Smem::kOutScores + by_rows);
  load_matrix(value, square + Smem::kValueScores + by_rows);
  load_matrix_transposed(out_turned, square + Smem::kOutScores + by_chunks);
  load_matrix_transposed(value_turned, square + Smem::kValueScores + by_chunks);
  keep_level<kHalf>(out, g, 2 * t, false, 1);
  keep_level<kHalf>(value, g, 2 * t, false, 1);
  keep_level<kHalf>(out_turned, g, 2 * t, true, 2);
  keep_level<kHalf>(value_turned, g, 2 * t, true, 2);
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    float factor[2][2];
    unsigned k[2], q[2], ke[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const bool upper = ((g + 8 * h) & kHalf) != 0;
      float x[2], y[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int c = 2 * n + i;
        factor[h][i] = upper ? products.to[h][c] : products.after[h][c];
        x[i] = own.key(h, c) * factor[h][i];
        y[i] = in.scale * own.query(h, c) * factor[h][i];
      }
      k[h] = transpose_matrix(pack_pair(x[0], x[1], Element{}));
      q[h] = transpose_matrix(pack_pair(y[0], y[1], Element{}));
      ke[h] = transpose_matrix(pack_pair(-beta[h] * x[0], -beta[h] * x[1], Element{}));
    }
    float to_query[4] = {}, to_row[4] = {}, to_column[4] = {};
    multiply_add(to_query, out, k[0], k[1], Element{});
    multiply_add(to_row, value, k[0], k[1], Element{});
    multiply_add(to_column, out_turned, q[0], q[1], Element{});
    multiply_add(to_column, value_turned, ke[0], ke[1], Element{});
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float own_factor = factor[e / 2][e % 2];
      queries.x[n][e] = __fmaf_rn(own_factor, to_query[e], queries.x[n][e]);
      rows.x[n][e] = __fmaf_rn(own_factor, to_row[e], rows.x[n][e]);
      columns.x[n][e] = __fmaf_rn(own_factor, to_column[e], columns.x[n][e]);
    }
  }
}

}  // namespace lathe
