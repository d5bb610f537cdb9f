// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The pairs of tokens of a chunk in the backward of KDA. Those of different blocks of 16 are
// chained from block to block, as states are; those of one block go by the levels of kda/block.cuh.
//
// The gradient of a token's gate is the sum over the pairs that span it: row i at or behind the
// token, column j before it. Each is added where it spans, none is added and taken away again, so
// that a decay of nearly nothing has a gradient of nearly nothing however large its neighbours'.
#pragma once
#include "kda/chunk_work.cuh"

namespace lathe {

template <class Config>
struct KdaChunkPairs : KdaChunkWork<Config> {
  using Work = KdaChunkWork<Config>;
  using typename Work::Element;
  using typename Work::Operands;
  using typename Work::Own;
  using typename Work::Smem;
  using typename Work::Sums;
  using Work::block, Work::g, Work::in, Work::lane, Work::own_column, Work::part, Work::shared;
  using Work::t;
  using Work::Work;
  using Panels = KdaPanels<64>;

  __device__ __forceinline__ void store_through(int before, Sums& queries, Sums& rows,
                                                const Own& own,
                                                const KdaProducts<4>& products) const;
  __device__ __forceinline__ void chain_rows(Sums& queries, Sums& rows, const Own& own,
                                             const KdaProducts<4>& products) const;
  __device__ __forceinline__ void chain_columns(Sums& columns) const;
  __device__ __forceinline__ void add_level(int half, const Own& own,
                                            const KdaProducts<4>& products, Sums& queries,
                                            Sums& rows, Sums& columns, float (&span)[2][4]) const;
};

// The sum over the lanes that hold a column's tokens.
__device__ __forceinline__ float sum_over_tokens(float value) {
#pragma unroll
  for (int other = 4; other < 32; other *= 2) value += __shfl_xor_sync(0xffffffffu, value, other);
  return value;
}

// What the rows of the warp's block are paired with before block `before`: it spans all tokens of
// that block, once it has decayed over the blocks from there on, which is left to the reader.
template <class Config>
__device__ __forceinline__ void KdaChunkPairs<Config>::store_through(
    int before, Sums& queries, Sums& rows, const Own& own, const KdaProducts<4>& products) const {
  const int at = Smem::kThrough + Smem::kRow * (block * (block - 1) / 2 + before);
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    float sum = 0.0f;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float pair = in.scale * own.query(h, c) * queries.at(h, c) -
                         own.beta[h] * own.key(h, c) * rows.at(h, c);
      sum = __fmaf_rn(products.to[h][c], pair, sum);
    }
    sum = sum_over_tokens(sum);
    if (g == 0) store_shared(shared + at + 4 * own_column(c), sum);
  }
}

// Rows of the warp's block with the blocks before it, from the state at the chunk's start on.
template <class Config>
__device__ __forceinline__ void KdaChunkPairs<Config>::chain_rows(
    Sums& queries, Sums& rows, const Own& own, const KdaProducts<4>& products) const {
  const int square = KdaSquare::offset(row_of_rows_first(lane), chunk_of_rows_first(lane));
  const unsigned columns = Panels::at(
      shared + Smem::kKg + Panels::offset(row_of_rows_first(lane), chunk_of_rows_first(lane)),
      2 * part);
#pragma unroll 1
  for (int c = 0; c < block; ++c) {
    store_through(c, queries, rows, own, products);
    Operands a, keys;
    load_planes_transposed<Element, Smem::kKeyPlane>(keys, columns + c * 16 * 64);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      float decay[2];
      load_shared(shared + Smem::kDecay + Smem::kRow * c + 4 * own_column(2 * n), decay[0],
                  decay[1]);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        queries.x[n][e] *= decay[e % 2];
        rows.x[n][e] *= decay[e % 2];
      }
    }
    load_planes<Element, Smem::kScorePlane>(
        a, shared + Smem::kOutScores + lower_square(block, c) + square);
    multiply_add_pair(queries.x[0], queries.x[1], a, keys);
    load_planes<Element, Smem::kScorePlane>(
        a, shared + Smem::kValueScores + lower_square(block, c) + square);
    multiply_add_pair(rows.x[0], rows.x[1], a, keys);
  }
}

// Columns of the warp's block with the blocks behind it, from the state at the chunk's end on.
template <class Config>
__device__ __forceinline__ void KdaChunkPairs<Config>::chain_columns(Sums& columns) const {
  const int square = KdaSquare::offset(row_of_chunks_first(lane), chunk_of_chunks_first(lane));
  const unsigned rows = Panels::at(
      shared + Panels::offset(row_of_rows_first(lane), chunk_of_rows_first(lane)), 2 * part);
#pragma unroll 1
  for (int r = 3; r > block; --r) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      float decay[2];
      load_shared(shared + Smem::kDecay + Smem::kRow * r + 4 * own_column(2 * n), decay[0],
                  decay[1]);
#pragma unroll
      for (int e = 0; e < 4; ++e) columns.x[n][e] *= decay[e % 2];
    }
    Operands a, b;
    load_planes_transposed<Element, Smem::kScorePlane>(
        a, shared + Smem::kOutScores + lower_square(r, block) + square);
    load_planes_transposed<Element, Smem::kKeyPlane>(b, rows + r * 16 * 64 + Smem::kQg);
    multiply_add_pair(columns.x[0], columns.x[1], a, b);
    load_planes_transposed<Element, Smem::kScorePlane>(
        a, shared + Smem::kValueScores + lower_square(r, block) + square);
    load_planes_transposed<Element, Smem::kKeyPlane>(b, rows + r * 16 * 64 + Smem::kKe);
    multiply_add_pair(columns.x[0], columns.x[1], a, b);
  }
}

// Which words, and which halves of them, of a square of scores pair rows of the upper half of a
// group of 2 `half` tokens with columns of the lower: of words 0 and 3 of an operand some, or where
// the halves are 8 word 1, or of a transposed one word 2, alone.
struct KdaLevelMask {
  unsigned diagonal, apart;

  __device__ __forceinline__ KdaLevelMask(int half, int row, int first_column, bool transposed)
      : diagonal(0u), apart(half == 8 ? 0xffffffffu : 0u) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int upper = transposed ? first_column + i : row;
      const int lower = transposed ? row : first_column + i;
      const bool kept = (upper & half) != 0 && (lower & half) == 0 && (upper ^ lower) < 2 * half;
      diagonal |= kept ? 0xffffu << 16 * i : 0u;
    }
  }
  template <class Element>
  __device__ __forceinline__ void apply(Fragment<Element>& a, bool transposed) const {
#pragma unroll
    for (int i = 0; i < Operand<Element>::kPlanes; ++i) {
      a.word[i][0] &= diagonal, a.word[i][3] &= diagonal;
      a.word[i][1] &= transposed ? 0u : apart, a.word[i][2] &= transposed ? apart : 0u;
    }
  }
};

// Words of two tokens and two neighbouring columns each -> operand B of eight columns, turned in
// registers.
template <class Element>
__device__ __forceinline__ void put_turned(Fragment<Element>& to, int word, float first,
                                           float second) {
  put_pair(to, word, first, second);
#pragma unroll
  for (int i = 0; i < Operand<Element>::kPlanes; ++i) {
    to.word[i][word] = transpose_matrix(to.word[i][word]);
  }
}

// The pairs of the warp's own block that part at `half`. `span`: what each token, as row or as
// column, adds to the gates between it and its partners.
template <class Config>
__device__ __forceinline__ void KdaChunkPairs<Config>::add_level(int half, const Own& own,
                                                                 const KdaProducts<4>& products,
                                                                 Sums& queries, Sums& rows,
                                                                 Sums& columns,
                                                                 float (&span)[2][4]) const {
  const unsigned square = shared + lower_square(block, block);
  const int by_rows = KdaSquare::offset(row_of_rows_first(lane), chunk_of_rows_first(lane));
  const int by_chunks = KdaSquare::offset(row_of_chunks_first(lane), chunk_of_chunks_first(lane));
  const KdaLevelMask mask(half, g, 2 * t, false), turned_mask(half, g, 2 * t, true);
  const auto load = [&](Operands& a, int scores, bool transposed) {
    if (transposed) {
      load_planes_transposed<Element, Smem::kScorePlane>(a, square + scores + by_chunks);
    } else {
      load_planes<Element, Smem::kScorePlane>(a, square + scores + by_rows);
    }
    (transposed ? turned_mask : mask).apply(a, transposed);
  };
  const auto factor = [&](int h, int c) {
    return ((g + 8 * h) & half) != 0 ? products.to[h][c] : products.after[h][c];
  };
  Operands a, b;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      put_turned(b, 2 * n + h, own.key(h, 2 * n) * factor(h, 2 * n),
                 own.key(h, 2 * n + 1) * factor(h, 2 * n + 1));
    }
  }
  // A token is a row or a column here: the other sums are 0.
  const auto add_rows = [&](int scores, Sums& sums, bool keys) {
    Sums level;
    load(a, scores, false);
    multiply_add_pair(level.x[0], level.x[1], a, b);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const float each = factor(h, c) * level.at(h, c);
        sums.at(h, c) += each;
        if (keys) {
          span[h][c] -= own.beta[h] * own.key(h, c) * each;
        } else {
          span[h][c] = in.scale * own.query(h, c) * each;
        }
      }
    }
  };
  add_rows(Smem::kOutScores, queries, false);
  add_rows(Smem::kValueScores, rows, true);
  Sums level;
#pragma unroll
  for (int keys = 0; keys < 2; ++keys) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float x[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int c = 2 * n + i;
          x[i] = keys == 0 ? in.scale * own.query(h, c) : -own.beta[h] * own.key(h, c);
          x[i] *= factor(h, c);
        }
        put_turned(b, 2 * n + h, x[0], x[1]);
      }
    }
    load(a, keys == 0 ? Smem::kOutScores : Smem::kValueScores, true);
    multiply_add_pair(level.x[0], level.x[1], a, b);
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float each = factor(h, c) * level.at(h, c);
      columns.at(h, c) += each;
      span[h][c] = __fmaf_rn(own.key(h, c), each, span[h][c]);
    }
  }
}

// `sum` gets what spans a token, of values of the halves of groups of 2 `half` tokens: of rows, the
// upper half, those of the token and behind it, and of columns those before it. `value` becomes the
// sum over the half, at most eight of them.
__device__ __forceinline__ void add_spans(float (&sum)[4], float (&value)[4], int half, int token,
                                          bool upper) {
#pragma unroll
  for (int c = 0; c < 4; ++c) sum[c] += upper ? value[c] : 0.0f;
#pragma unroll
  for (int apart = 1; apart < 8; apart *= 2) {
    if (apart >= half) break;
    const bool other_half = ((token & apart) != 0) != upper;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float other = __shfl_xor_sync(0xffffffffu, value[c], 4 * apart);
      sum[c] += other_half ? other : 0.0f;
      value[c] += other;
    }
  }
}

}  // namespace lathe
