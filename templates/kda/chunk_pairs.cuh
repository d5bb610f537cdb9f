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
  using typename Work::Accumulators;
  using typename Work::Element;
  using typename Work::LaneRows;
  using typename Work::Operands;
  using typename Work::Smem;
  using Work::block, Work::g, Work::in, Work::lane, Work::lane_column, Work::part, Work::shared;
  using Work::t;
  using Work::Work;
  using Panels = KdaPanels<64>;

  __device__ __forceinline__ void store_through(int before, Accumulators& queries,
                                                Accumulators& rows, const LaneRows& lane_rows,
                                                const KdaProducts<4>& products) const;
  __device__ __forceinline__ void chain_rows(Accumulators& queries, Accumulators& rows,
                                             const LaneRows& lane_rows,
                                             const KdaProducts<4>& products) const;
  __device__ __forceinline__ void chain_columns(Accumulators& columns) const;
  __device__ __forceinline__ void add_level(int half, const LaneRows& lane_rows,
                                            const KdaProducts<4>& products, Accumulators& queries,
                                            Accumulators& rows, Accumulators& columns,
                                            float (&span)[2][4]) const;
};

// Stores what the rows of the warp's block are paired with before block `before`: it spans all
// tokens of that block, once it has decayed over the blocks from there on, which is left to the
// reader.
template <class Config>
__device__ __forceinline__ void KdaChunkPairs<Config>::store_through(
    int before, Accumulators& queries, Accumulators& rows, const LaneRows& lane_rows,
    const KdaProducts<4>& products) const {
  const int at = Smem::kThrough + Smem::kRow * (block * (block - 1) / 2 + before);
  float sum[4] = {};
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float pair = lane_rows.q[h][c] * queries.at(h, c) -
                         lane_rows.beta[h] * lane_rows.k[h][c] * rows.at(h, c);
      sum[c] = __fmaf_rn(products.to[h][c], pair, sum[c]);
    }
  }
  const float whole = sum_over_tokens(sum, g);
  if ((g & 1) == 0) store_shared(shared + at + 4 * lane_column(g >> 1), whole);
}

// Rows of the warp's block with the blocks before it, from the state at the chunk's start on.
template <class Config>
__device__ __forceinline__ void KdaChunkPairs<Config>::chain_rows(
    Accumulators& queries, Accumulators& rows, const LaneRows& lane_rows,
    const KdaProducts<4>& products) const {
  const int square = KdaSquare::offset(row_of_rows_first(lane), chunk_of_rows_first(lane));
  const unsigned columns = Panels::at(
      shared + Smem::kKg + Panels::offset(row_of_rows_first(lane), chunk_of_rows_first(lane)),
      2 * part);
#pragma unroll 1
  for (int c = 0; c < block; ++c) {
    store_through(c, queries, rows, lane_rows, products);
    Operands a, keys;
    load_planes_transposed<Element, Smem::kKeyPlane>(keys, columns + c * 16 * 64);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      float decay[2];
      load_shared(shared + Smem::kDecay + Smem::kRow * c + 4 * lane_column(2 * n), decay[0],
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
__device__ __forceinline__ void KdaChunkPairs<Config>::chain_columns(Accumulators& columns) const {
  const int square = KdaSquare::offset(row_of_chunks_first(lane), chunk_of_chunks_first(lane));
  const unsigned rows = Panels::at(
      shared + Panels::offset(row_of_rows_first(lane), chunk_of_rows_first(lane)), 2 * part);
#pragma unroll 1
  for (int r = 3; r > block; --r) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      float decay[2];
      load_shared(shared + Smem::kDecay + Smem::kRow * r + 4 * lane_column(2 * n), decay[0],
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

  // The highest bit in which token g and tokens 2t, 2t + 1 differ is that of the level, and it is
  // the row that has it: g, or in the transposed square the others.
  __device__ __forceinline__ KdaLevelMask(int half, int g, int t, bool transposed)
      : apart(half == 8 ? 0xffffffffu : 0u) {
    const unsigned first = (g ^ 2 * t) - half, second = (g ^ (2 * t + 1)) - half;
    const unsigned pairs = (first < static_cast<unsigned>(half) ? 0xffffu : 0u) |
                           (second < static_cast<unsigned>(half) ? 0xffff0000u : 0u);
    diagonal = ((g & half) != 0) != transposed ? pairs : 0u;
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
__device__ __forceinline__ void KdaChunkPairs<Config>::add_level(
    int half, const LaneRows& lane_rows, const KdaProducts<4>& products, Accumulators& queries,
    Accumulators& rows, Accumulators& columns, float (&span)[2][4]) const {
  const unsigned square = shared + lower_square(block, block);
  const int by_rows = KdaSquare::offset(row_of_rows_first(lane), chunk_of_rows_first(lane));
  const int by_chunks = KdaSquare::offset(row_of_chunks_first(lane), chunk_of_chunks_first(lane));
  const KdaLevelMask mask(half, g, t, false), turned_mask(half, g, t, true);
  const auto load = [&](Operands& a, int scores, bool transposed) {
    if (transposed) {
      load_planes_transposed<Element, Smem::kScorePlane>(a, square + scores + by_chunks);
    } else {
      load_planes<Element, Smem::kScorePlane>(a, square + scores + by_rows);
    }
    (transposed ? turned_mask : mask).apply(a, transposed);
  };
  // Queries and keys with their parts of the factors of pairs; and keys as rows.
  float factor[2][4], q[2][4], k[2][4], ke[2][4];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const bool upper = ((g + 8 * h) & half) != 0;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      factor[h][c] = upper ? products.to[h][c] : products.after[h][c];
      q[h][c] = lane_rows.q[h][c] * factor[h][c], k[h][c] = lane_rows.k[h][c] * factor[h][c];
      ke[h][c] = -lane_rows.beta[h] * k[h][c];
    }
  }
  Operands a, b;
  const auto turn = [&](const float(&x)[2][4]) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int h = 0; h < 2; ++h) put_turned(b, 2 * n + h, x[h][2 * n], x[h][2 * n + 1]);
    }
  };
  // A token is a row or a column here: of the sums that go into its span the others are 0.
  const auto add = [&](Accumulators& level, Accumulators& sums, const float(&x)[2][4]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        sums.at(h, c) = __fmaf_rn(factor[h][c], level.at(h, c), sums.at(h, c));
        span[h][c] = __fmaf_rn(x[h][c], level.at(h, c), span[h][c]);
        level.at(h, c) = 0.0f;
      }
    }
  };
  Accumulators level;
  turn(k);
  load(a, Smem::kOutScores, false);
  multiply_add_pair(level.x[0], level.x[1], a, b);
  add(level, queries, q);
  load(a, Smem::kValueScores, false);
  multiply_add_pair(level.x[0], level.x[1], a, b);
  add(level, rows, ke);
  turn(q);
  load(a, Smem::kOutScores, true);
  multiply_add_pair(level.x[0], level.x[1], a, b);
  turn(ke);
  load(a, Smem::kValueScores, true);
  multiply_add_pair(level.x[0], level.x[1], a, b);
  add(level, columns, k);
}

// `sum` gets what spans a token, of values of the halves of groups of 2 `half` tokens: of rows, the
// upper half, those of the token and behind it, and of columns those before it. `value` becomes the
// sum over the half, at most eight of them.
__device__ __forceinline__ void add_spans(float (&sum)[4], float (&value)[4], int half, int token,
                                          bool upper) {
  const float counted = upper ? 1.0f : 0.0f;
#pragma unroll
  for (int c = 0; c < 4; ++c) sum[c] = __fmaf_rn(counted, value[c], sum[c]);
#pragma unroll
  for (int apart = 1; apart < 8; apart *= 2) {
    if (apart >= half) break;
    const float others = ((token & apart) != 0) != upper ? 1.0f : 0.0f;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float other = __shfl_xor_sync(0xffffffffu, value[c], 4 * apart);
      sum[c] = __fmaf_rn(others, other, sum[c]);
      value[c] += other;
    }
  }
}

}  // namespace lathe
