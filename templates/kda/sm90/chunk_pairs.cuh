// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The pairs of tokens of a chunk by warpgroups (sm_90a); kda/kda_backward.cuh has the formulas.
// Those of different blocks of 16 are chained from block to block, as states are. Those of one
// block are products of quotients, with e_i = alpha_0 ... alpha_i of the block:
//
//   a_ij k_j = e_i (k_j / e_j)      a_ij q_i = (e_i q_i) / e_j
//
// e is 2^57 times as large as said, and so are rows of queries and of keys: e and its reciprocal
// then lie around 1, down to decays of 2^-117. A block that has a column below takes its pairs by
// their distance instead, whose factors are products. No exponent is positive.
//
// The gradient of a gate is what rows at and behind its token are paired with, less what columns at
// and behind it are. The factors of a pair are rounded to operands, and here rows and columns are
// multiplied by the numbers that the other side had as operands: a pair that does not span the
// token is taken away as it was added, so that a decay of nearly nothing has a gradient of nearly
// nothing.
#pragma once
#include "kda/sm90/chunk_tiles.cuh"

namespace lathe {

template <class Config>
struct KdaChunkPairsByQuotients : KdaChunkTiles<Config> {
  using Tiles = KdaChunkTiles<Config>;
  using Tiles::block, Tiles::column, Tiles::g, Tiles::in, Tiles::lane, Tiles::part, Tiles::place;
  using Tiles::row, Tiles::shared, Tiles::t, Tiles::word;
  using Tiles::Tiles;
  using typename Tiles::Element;
  using typename Tiles::Smem;
  static constexpr int kEach = Tiles::kEach;
  static constexpr float kScaling = 0x1p57f, kUnscaling = 1.0f / kScaling, kLeast = 0x1p-60f;

  // Sums of the lane: in the end dq without the scale, the gradient of gates, and dk.
  struct Sums {
    float queries[kEach] = {}, rows[kEach] = {}, columns[kEach] = {};
  };
  // The lane's part of q, k and the decays of 16 columns, every transform done.
  struct Rows {
    float q[2][4], k[2][4], beta[2];
  };
  // Where products of decays of the lane's tokens in their block wait, up to the token and behind
  // it: each thread's own.
  __device__ __forceinline__ unsigned stash(int m) const {
    return shared + Smem::kKept + 16 * m * 4 * Config::kThreads + 4 * this->thread;
  }
  template <class Products>
  __device__ __forceinline__ void store_decays(int m, const Products& products) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      store_shared(stash(m) + i * 4 * Config::kThreads, products.to[i / 4][i % 4]);
      store_shared(stash(m) + (8 + i) * 4 * Config::kThreads, products.after[i / 4][i % 4]);
    }
  }
  __device__ __forceinline__ void load_to(int m, float (&to)[2][4]) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) to[i / 4][i % 4] = load_shared(stash(m) + i * 4 * Config::kThreads);
  }

  __device__ __forceinline__ void chain_rows(Sums& sums) const;
  __device__ __forceinline__ void chain_columns(Sums& sums) const;
  __device__ __forceinline__ void decay(float (&x)[kEach], int of_block) const;
  __device__ __forceinline__ void multiply(float (&x)[kEach], const Fragment<Element>& a,
                                           int tile_at, int of_block) const;
  __device__ __forceinline__ void load_score(Fragment<Element>& a, int scores, int r, int c,
                                             bool turned) const;
  __device__ __forceinline__ void store_behind(const Sums& sums) const;
  __device__ __forceinline__ void load_rounded(int tile_at, int m, float (&x)[2][4]) const;
  __device__ __forceinline__ void finish_chains(int m, Sums& sums, float (&dg)[2][4]) const;
  __device__ __forceinline__ void multiply_own(const Fragment<Element>& a,
                                               const Fragment<Element>& b, float (&x)[2][4]) const;
  __device__ __forceinline__ void add_quotients(int m, const Rows& rows, Sums& sums,
                                                float (&dg)[2][4]) const;
  __device__ __forceinline__ float score_before(int scores, int apart, int h) const;
  __device__ __forceinline__ void add_by_distance(int m, int c, const Rows& rows,
                                                  const float (&alpha)[2], Sums& sums,
                                                  float (&dg)[2][4]) const;
};

// Block (r, c) of do vn^T or y vn^T as a first operand.
template <class Config>
__device__ __forceinline__ void KdaChunkPairsByQuotients<Config>::load_score(Fragment<Element>& a,
                                                                             int scores, int r,
                                                                             int c,
                                                                             bool turned) const {
  const unsigned from = shared + scores;
  if (turned) {
    load_matrix_transposed(a.word[0], from + swizzled(16 * r + row_of_chunks_first(lane),
                                                      2 * c + chunk_of_chunks_first(lane)));
  } else {
    load_matrix(a.word[0], from + swizzled(16 * r + row_of_rows_first(lane),
                                           2 * c + chunk_of_rows_first(lane)));
  }
}

// x += A B, B being a block's rows of a tile, the part's columns.
template <class Config>
__device__ __forceinline__ void KdaChunkPairsByQuotients<Config>::multiply(
    float (&x)[kEach], const Fragment<Element>& a, int tile_at, int of_block) const {
  const unsigned from = shared + tile_at + part / 2 * Smem::kRows;
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    unsigned b[4];
    load_matrix_transposed(b, from + swizzled(16 * of_block + row_of_rows_first(lane),
                                              part % 2 * 4 + 2 * m + chunk_of_rows_first(lane)));
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      float(&d)[4] = reinterpret_cast<float(&)[4]>(x[8 * m + 4 * n]);
      multiply_add(d, a.word[0], b[2 * n], b[2 * n + 1], Element{});
    }
  }
}

template <class Config>
__device__ __forceinline__ void KdaChunkPairsByQuotients<Config>::decay(float (&x)[kEach],
                                                                        int of_block) const {
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    float by[2];
    load_shared(shared + Smem::kDecay + of_block * Smem::kColumn + 4 * (32 * part + 8 * n + 2 * t),
                by[0], by[1]);
#pragma unroll
    for (int i = 0; i < 4; ++i) x[4 * n + i] *= by[i % 2];
  }
}

// Rows of the warp's block with the blocks before it, from the state at the chunk's start on.
template <class Config>
__device__ __forceinline__ void KdaChunkPairsByQuotients<Config>::chain_rows(Sums& sums) const {
#pragma unroll 1
  for (int c = 0; c < block; ++c) {
    decay(sums.queries, c);
    decay(sums.rows, c);
    Fragment<Element> a;
    load_score(a, Smem::kOutScores, block, c, false);
    multiply(sums.queries, a, Smem::kKeyColumns, c);
    load_score(a, Smem::kValueScores, block, c, false);
    multiply(sums.rows, a, Smem::kKeyColumns, c);
  }
}

// Columns of the warp's block with the blocks behind it, from the state at the chunk's end on.
template <class Config>
__device__ __forceinline__ void KdaChunkPairsByQuotients<Config>::chain_columns(Sums& sums) const {
#pragma unroll
  for (int i = 0; i < kEach; ++i) sums.columns[i] *= kScaling;  // as rows of q and k are
#pragma unroll 1
  for (int r = 3; r > block; --r) {
    decay(sums.columns, r);
    Fragment<Element> a;
    load_score(a, Smem::kOutScores, r, block, true);
    multiply(sums.columns, a, Smem::kQueryRows, r);
    load_score(a, Smem::kValueScores, r, block, true);
    multiply(sums.columns, a, Smem::kKeyRows, r);
  }
}

// Two numbers of each of the lane's tokens and tiles of 8 columns, as operands have them.
template <class Config>
__device__ __forceinline__ void KdaChunkPairsByQuotients<Config>::load_rounded(
    int tile_at, int m, float (&x)[2][4]) const {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      unpack_pair(load_shared_word(word(tile_at, h, 2 * m + n)), Element{}, x[h][2 * n],
                  x[h][2 * n + 1]);
    }
  }
}

// Stores the block's dot products of keys with what the state behind the chunk gives them.
template <class Config>
__device__ __forceinline__ void KdaChunkPairsByQuotients<Config>::store_behind(
    const Sums& sums) const {
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    float keys[2][4], dots[4] = {};
    load_rounded(Smem::kKeyColumns, m, keys);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        dots[c] = __fmaf_rn(keys[h][c], sums.columns[place(m, h, c)], dots[c]);
      }
    }
    const float whole = sum_over_tokens(dots, g);
    if ((g & 1) == 0) {
      store_shared(shared + Smem::kBehind + block * Smem::kColumn + 4 * column(m, g >> 1), whole);
    }
  }
}

// The sums over states and other blocks, brought to the tokens, and what they add to the gates.
template <class Config>
__device__ __forceinline__ void KdaChunkPairsByQuotients<Config>::finish_chains(
    int m, Sums& sums, float (&dg)[2][4]) const {
  float q[2][4], ke[2][4], kg[2][4];
  load_rounded(Smem::kQueryRows, m, q);
  load_rounded(Smem::kKeyRows, m, ke);
  load_rounded(Smem::kKeyColumns, m, kg);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int at = place(m, h, c);
      const float pairs = __fmaf_rn(q[h][c], sums.queries[at], ke[h][c] * sums.rows[at]);
      dg[h][c] = kUnscaling * __fmaf_rn(-kg[h][c], sums.columns[at], pairs);
      const float to = load_shared(stash(m) + (4 * h + c) * 4 * Config::kThreads);
      const float after = load_shared(stash(m) + (8 + 4 * h + c) * 4 * Config::kThreads);
      sums.queries[at] *= to;
      sums.rows[at] *= to;
      sums.columns[at] *= kUnscaling * after;
    }
  }
}

// x = A B of the warp's own block and 16 columns.
template <class Config>
__device__ __forceinline__ void KdaChunkPairsByQuotients<Config>::multiply_own(
    const Fragment<Element>& a, const Fragment<Element>& b, float (&x)[2][4]) const {
  float first[4] = {}, second[4] = {};
  multiply_add_pair(first, second, a, b);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    x[h][0] = first[2 * h], x[h][1] = first[2 * h + 1];
    x[h][2] = second[2 * h], x[h][3] = second[2 * h + 1];
  }
}

// The pairs of the warp's own block.
template <class Config>
__device__ __forceinline__ void KdaChunkPairsByQuotients<Config>::add_quotients(
    int m, const Rows& rows, Sums& sums, float (&dg)[2][4]) const {
  float over[2][4], rounded[2][4], sum[2][4];
  float to[2][4], read[2][4];
  Fragment<Element> keys, a, b;
  load_to(m, to);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int c = 0; c < 4; ++c) over[h][c] = rcp_normal(kScaling * to[h][c]);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const float x = rows.k[h][2 * n] * over[h][2 * n];
      const float y = rows.k[h][2 * n + 1] * over[h][2 * n + 1];
      const unsigned pair = pack_pair(x, y, Element{});
      unpack_pair(pair, Element{}, rounded[h][2 * n], rounded[h][2 * n + 1]);
      keys.word[0][2 * n + h] = transpose_matrix(pair);
    }
  }
  const auto add = [&](float(&to)[kEach], const float(&factor)[2][4], float scale) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int at = place(m, h, c);
        to[at] = __fmaf_rn(scale * factor[h][c], sum[h][c], to[at]);
      }
    }
  };
  const auto span = [&](const float(&factor)[2][4], float sign) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        dg[h][c] = __fmaf_rn(sign * factor[h][c], sum[h][c], dg[h][c]);
      }
    }
  };
  load_score(a, Smem::kOutScores, block, block, false);
  multiply_own(a, keys, sum);
  add(sums.queries, to, kScaling);
  load_rounded(Smem::kQueryRows, m, read);
  span(read, 1.0f);
  load_score(a, Smem::kValueScores, block, block, false);
  multiply_own(a, keys, sum);
  add(sums.rows, to, kScaling);
  load_rounded(Smem::kKeyRows, m, read);
  span(read, 1.0f);
  const unsigned own = shared + part / 2 * Smem::kRows +
                       swizzled(16 * block + row_of_rows_first(lane),
                                part % 2 * 4 + 2 * m + chunk_of_rows_first(lane));
  float first[4] = {}, second[4] = {};
  load_matrix_transposed(b.word[0], own + Smem::kQueryRows);
  load_score(a, Smem::kOutScores, block, block, true);
  multiply_add_pair(first, second, a, b);
  load_matrix_transposed(b.word[0], own + Smem::kKeyRows);
  load_score(a, Smem::kValueScores, block, block, true);
  multiply_add_pair(first, second, a, b);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    sum[h][0] = first[2 * h], sum[h][1] = first[2 * h + 1];
    sum[h][2] = second[2 * h], sum[h][3] = second[2 * h + 1];
  }
  add(sums.columns, over, 1.0f);
  span(rounded, -1.0f);
}

// x of the token `apart` before that of half h; 0 where there is none.
__device__ __forceinline__ float before_by(const float (&x)[2], int apart, int lane, int h) {
  const int from = lane / 4 + 8 * h - apart, source = (from & 7) * 4 + lane % 4;
  const float lower = __shfl_sync(0xffffffffu, x[0], source);
  const float upper = __shfl_sync(0xffffffffu, x[1], source);
  return from < 0 ? 0.0f : from < 8 ? lower : upper;
}

// Score i of the lane's token of half h and the one `apart` before it; 0 where there is none.
template <class Config>
__device__ __forceinline__ float KdaChunkPairsByQuotients<Config>::score_before(int scores,
                                                                                int apart,
                                                                                int h) const {
  const int partner = g + 8 * h - apart;
  if (partner < 0) return 0.0f;
  float x, y;
  unpack_pair(load_shared_word(shared + scores + swizzled(row(h), 2 * block + partner / 8) +
                               (partner & 6) * 2),
              Element{}, x, y);
  return (partner & 1) != 0 ? y : x;
}

// The same for any decays, of one column, by the distance of the tokens of a pair. What a token
// gives the one `apart` before or behind it goes from lane to lane.
template <class Config>
__device__ __forceinline__ void KdaChunkPairsByQuotients<Config>::add_by_distance(
    int m, int c, const Rows& rows, const float (&alpha)[2], Sums& sums, float (&dg)[2][4]) const {
  float factor[2] = {1.0f, 1.0f};
  const float key[2] = {rows.k[0][c], rows.k[1][c]};
#pragma unroll 1
  for (int apart = 1; apart < 16; ++apart) {
    float given[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int at = place(m, h, c);
      factor[h] *= before_by(alpha, apart - 1, lane, h);
      const float partner = factor[h] * before_by(key, apart, lane, h);
      const float output = score_before(Smem::kOutScores, apart, h);
      const float value = score_before(Smem::kValueScores, apart, h);
      sums.queries[at] = __fmaf_rn(output, partner, sums.queries[at]);
      sums.rows[at] = __fmaf_rn(value, partner, sums.rows[at]);
      const float both = __fmaf_rn(output, rows.q[h][c], value * -rows.beta[h] * key[h]);
      given[h] = both * factor[h];
      dg[h][c] = __fmaf_rn(both, partner, dg[h][c]);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int from = g + 8 * h + apart, source = (from & 7) * 4 + t;
      const float lower = __shfl_sync(0xffffffffu, given[0], source);
      const float upper = __shfl_sync(0xffffffffu, given[1], source);
      const float got = from > 15 ? 0.0f : from < 8 ? lower : upper;
      sums.columns[place(m, h, c)] += got;
      dg[h][c] = __fmaf_rn(-key[h], got, dg[h][c]);
    }
  }
}

}  // namespace lathe
