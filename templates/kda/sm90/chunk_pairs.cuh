// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The pairs of tokens of a chunk by warpgroups (sm_90a); kda/kda_backward.cuh has the formulas.
// Pairs are products of quotients, with e_i = alpha_0 ... alpha_i of a block of 16 tokens:
//
//   a_ij k_j = e_i (k_j / e_j)      a_ij q_i = (e_i q_i) / e_j
//
// Those of different blocks are chained from block to block, as states are: rows are seen from
// their block's start, and columns too, so that the block's decay comes after they are added. The
// warp's own block ends its chains. e is 2^57 times as large as said, and so are rows of queries
// and of keys: e and its reciprocal then lie around 1, down to decays of 2^-117. A block that has a
// column below is cut: its columns are seen from its end, its decay comes first, and it takes its
// own pairs by their distance, whose factors are products. No exponent is positive. A block is cut
// by the part of K, as a warp sees it.
//
// The gradient of a gate is what rows at and behind its token are paired with, less what columns at
// and behind it are. The factors of a pair are rounded to operands, and here rows and columns are
// multiplied by the numbers that the other side had as operands: a pair that does not span the
// token is taken away as it was added, so that a decay of nearly nothing has a gradient of nearly
// nothing. What the last token gives the state behind the chunk spans no token: it is the one pair
// that no decay makes small, and is neither added nor taken away.
#pragma once
#include "kda/sm90/chunk_tiles.cuh"

namespace lathe {

template <class Config>
struct KdaChunkPairsByQuotients : KdaChunkTiles<Config> {
  using Tiles = KdaChunkTiles<Config>;
  using Tiles::block, Tiles::column, Tiles::g, Tiles::in, Tiles::lane, Tiles::part, Tiles::place;
  using Tiles::row, Tiles::shared, Tiles::t, Tiles::tile, Tiles::warp, Tiles::word;
  using Tiles::Tiles;
  using typename Tiles::Element;
  using typename Tiles::Smem;
  static constexpr int kEach = Tiles::kEach;
  static constexpr float kScaling = 0x1p57f, kUnscaling = 1.0f / kScaling, kLeast = 0x1p-60f;

  // Sums of the lane: in the end dq, the gradient of gates, and dk.
  struct Sums {
    float queries[kEach] = {}, rows[kEach] = {}, columns[kEach] = {};
  };
  // The lane's part of q, k and the decays of 16 columns, every transform done.
  struct Rows {
    float q[2][4], k[2][4], beta[2];
  };
  // A tile of the warp's own, float32 [16 tokens][32 columns]: e of its tokens, and then what they
  // add to the gradients of their gates. Neighbouring rows have their eights of columns in other
  // places: lanes with two columns each of eight rows read different banks, and so do lanes with
  // four of a row.
  //
  // The address of columns 8 n + 2 t and the next of the lane's token of half h.
  __device__ __forceinline__ unsigned kept(int h, int n) const {
    return shared + Smem::kKept + warp * Smem::kKeptTile + (g + 8 * h) * 128 +
           ((n ^ (g & 3)) << 5) + 8 * t;
  }
  // The same of a lane that has four columns of four tokens in turn, the one of token i.
  __device__ __forceinline__ unsigned kept_in_turn(int i) const {
    return shared + Smem::kKept + warp * Smem::kKeptTile + ((lane >> 3) * 4 + i) * 128 +
           (((lane >> 1 & 3) ^ i) << 5) + (lane & 1) * 16;
  }
  __device__ __forceinline__ void load_kept(int m, float (&x)[2][4]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        load_shared(kept(h, 2 * m + n), x[h][2 * n], x[h][2 * n + 1]);
      }
    }
  }
  // Whether block b is cut, of the warp's part of K.
  __device__ __forceinline__ unsigned cut_at(int b) const {
    return shared + Smem::kCut + 4 * (4 * part + b);
  }

  __device__ __forceinline__ void scale(Sums& sums) const;
  __device__ __forceinline__ void decay_rows(int c, Sums& sums) const;
  __device__ __forceinline__ void add_to_rows(int c, Sums& sums) const;
  __device__ __forceinline__ void add_to_columns(int r, Sums& sums) const;
  __device__ __forceinline__ void chain_rows(bool cut, Sums& sums) const;
  __device__ __forceinline__ void chain_columns(bool cut, Sums& sums) const;
  __device__ __forceinline__ void load_decays(int of_block, float (&by)[8]) const;
  __device__ __forceinline__ static void decay(float (&x)[kEach], const float (&by)[8]);
  __device__ __forceinline__ void load_columns(int tile_at, int of_block,
                                               unsigned (&b)[2][4]) const;
  __device__ __forceinline__ void multiply(float (&x)[kEach], int scores, int r, int c, bool turned,
                                           const unsigned (&b)[2][4]) const;
  __device__ __forceinline__ void store_behind(bool cut, const Sums& sums) const;
  __device__ __forceinline__ void load_rounded(int tile_at, int m, float (&x)[2][4]) const;
  __device__ __forceinline__ void load_columns_of_gates(int m, float (&x)[2][4]) const;
  __device__ __forceinline__ void finish_chains(int m, const float (&to)[2][4],
                                                const float (&of_columns)[2][4], Sums& sums,
                                                float (&dg)[2][4]) const;
  __device__ __forceinline__ float score_before(int scores, int apart, int h) const;
  __device__ __forceinline__ void add_by_distance(int m, int c, const Rows& rows,
                                                  const float (&alpha)[2], Sums& sums,
                                                  float (&dg)[2][4]) const;
};

// Sums over states as the chains have them: columns are multiplied by scaled rows, and rows by
// columns that are as much too small.
template <class Config>
__device__ __forceinline__ void KdaChunkPairsByQuotients<Config>::scale(Sums& sums) const {
  const float queries = kUnscaling * in.scale;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    sums.queries[i] *= queries, sums.rows[i] *= kUnscaling, sums.columns[i] *= kScaling;
  }
}

// A block's rows of a tile as second operands, the part's columns.
template <class Config>
__device__ __forceinline__ void KdaChunkPairsByQuotients<Config>::load_columns(
    int tile_at, int of_block, unsigned (&b)[2][4]) const {
  const unsigned from = shared + tile_at + part / 2 * Smem::kRows;
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    load_matrix_transposed(b[m], from + swizzled(16 * of_block + row_of_rows_first(lane),
                                                 part % 2 * 4 + 2 * m + chunk_of_rows_first(lane)));
  }
}

// x += A B, A being block (r, c) of do vn^T or y vn^T, or the same turned.
template <class Config>
__device__ __forceinline__ void KdaChunkPairsByQuotients<Config>::multiply(
    float (&x)[kEach], int scores, int r, int c, bool turned, const unsigned (&b)[2][4]) const {
  const unsigned from = shared + scores;
  unsigned a[4];
  if (turned) {
    load_matrix_transposed(a, from + swizzled(16 * r + row_of_chunks_first(lane),
                                              2 * c + chunk_of_chunks_first(lane)));
  } else {
    load_matrix(
        a, from + swizzled(16 * r + row_of_rows_first(lane), 2 * c + chunk_of_rows_first(lane)));
  }
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    float(&d)[4] = reinterpret_cast<float(&)[4]>(x[4 * n]);
    multiply_add(d, a, b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1], Element{});
  }
}

// The decays of a whole block, of the lane's columns.
template <class Config>
__device__ __forceinline__ void KdaChunkPairsByQuotients<Config>::load_decays(
    int of_block, float (&by)[8]) const {
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    load_shared(shared + Smem::kDecay + of_block * Smem::kColumn + 4 * (32 * part + 8 * n + 2 * t),
                by[2 * n], by[2 * n + 1]);
  }
}
template <class Config>
__device__ __forceinline__ void KdaChunkPairsByQuotients<Config>::decay(float (&x)[kEach],
                                                                        const float (&by)[8]) {
#pragma unroll
  for (int i = 0; i < kEach; ++i) x[i] *= by[i / 4 * 2 + i % 2];
}

template <class Config>
__device__ __forceinline__ void KdaChunkPairsByQuotients<Config>::decay_rows(int c,
                                                                             Sums& sums) const {
  float by[8];
  load_decays(c, by);
  decay(sums.queries, by), decay(sums.rows, by);
}

// Adds what block c gives to rows of the warp's block.
template <class Config>
__device__ __forceinline__ void KdaChunkPairsByQuotients<Config>::add_to_rows(int c,
                                                                              Sums& sums) const {
  unsigned b[2][4];
  load_columns(Smem::kKeyColumns, c, b);
  multiply(sums.queries, Smem::kOutScores, block, c, false, b);
  multiply(sums.rows, Smem::kValueScores, block, c, false, b);
}

// Rows of the warp's block with the blocks before it and, unless it is cut, with itself, from the
// state at the chunk's start on.
template <class Config>
__device__ __forceinline__ void KdaChunkPairsByQuotients<Config>::chain_rows(bool cut,
                                                                             Sums& sums) const {
#pragma unroll 1
  for (int c = 0; c < block; ++c) {
    const bool first = load_shared_word(cut_at(c)) != 0;
    if (first) decay_rows(c, sums);
    add_to_rows(c, sums);
    if (!first) decay_rows(c, sums);
  }
  if (!cut) add_to_rows(block, sums);
}

// Adds what block r, whose decay comes first, gives to columns of the warp's block.
template <class Config>
__device__ __forceinline__ void KdaChunkPairsByQuotients<Config>::add_to_columns(int r,
                                                                                 Sums& sums) const {
  float by[8];
  load_decays(r, by);
  decay(sums.columns, by);
  unsigned b[2][4];
  load_columns(Smem::kQueryRows, r, b);
  multiply(sums.columns, Smem::kOutScores, r, block, true, b);
  load_columns(Smem::kKeyRows, r, b);
  multiply(sums.columns, Smem::kValueScores, r, block, true, b);
}

// Columns of the warp's block with the blocks behind it and, unless it is cut, with itself, from
// the state at the chunk's end on.
template <class Config>
__device__ __forceinline__ void KdaChunkPairsByQuotients<Config>::chain_columns(bool cut,
                                                                                Sums& sums) const {
#pragma unroll 1
  for (int r = 3; r > block; --r) add_to_columns(r, sums);
  if (!cut) add_to_columns(block, sums);
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

// Columns as gates see them. That of the last token is 0.
template <class Config>
__device__ __forceinline__ void KdaChunkPairsByQuotients<Config>::load_columns_of_gates(
    int m, float (&x)[2][4]) const {
  load_rounded(Smem::kKeyColumns, m, x);
  const int last = minimum(tile.count - tile.first, kKdaChunk) - 1;
  if (last / 16 != block) return;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int c = 0; c < 4; ++c) x[h][c] = row(h) == last ? 0.0f : x[h][c];
  }
}

// Stores the block's dot products of keys with what the state behind the chunk gives them, as they
// are before the block's decay if that comes first, else behind it.
template <class Config>
__device__ __forceinline__ void KdaChunkPairsByQuotients<Config>::store_behind(
    bool cut, const Sums& sums) const {
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    float keys[2][4], dots[4] = {};
    load_columns_of_gates(m, keys);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        dots[c] = __fmaf_rn(keys[h][c], sums.columns[place(m, h, c)], dots[c]);
      }
    }
    float whole = sum_over_tokens(dots, g);
    const unsigned at = shared + block * Smem::kColumn + 4 * column(m, g >> 1);
    if (!cut) whole *= load_shared(at + Smem::kDecay);
    if ((g & 1) == 0) store_shared(at + Smem::kBehind, whole);
  }
}

// The sums of the chains, brought to the tokens: rows by e, columns by `of_columns`; and what they
// add to the gates.
template <class Config>
__device__ __forceinline__ void KdaChunkPairsByQuotients<Config>::finish_chains(
    int m, const float (&to)[2][4], const float (&of_columns)[2][4], Sums& sums,
    float (&dg)[2][4]) const {
  float q[2][4], ke[2][4], kd[2][4];
  load_rounded(Smem::kQueryRows, m, q);
  load_rounded(Smem::kKeyRows, m, ke);
  load_columns_of_gates(m, kd);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int at = place(m, h, c);
      const float pairs = __fmaf_rn(q[h][c], sums.queries[at], ke[h][c] * sums.rows[at]);
      dg[h][c] = __fmaf_rn(-kd[h][c], sums.columns[at], pairs);
      sums.queries[at] *= to[h][c];
      sums.rows[at] *= to[h][c];
      sums.columns[at] *= of_columns[h][c];
    }
  }
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
