// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The squares of a block of 16 tokens and the rows that are multiplied by them, by the warp that
// prepares it (kda/sm90/preparer.cuh).
#pragma once
#include "kda/sm90/preparer.cuh"

namespace lathe {

// P and R from the rows as they are.
template <class Config>
__device__ __forceinline__ void KdaPreparing<Config>::multiply(const Record& record,
                                                               KdaBlockScores& scores) const {
  const int lane = fresh_lane();
  const unsigned rows = record.tile + swizzled(row_of_rows_first(lane), chunk_of_rows_first(lane));
  const unsigned columns =
      record.tile + Smem::kG + swizzled(row_of_chunks_first(lane), chunk_of_chunks_first(lane));
#pragma unroll
  for (int step = 0; step < Config::kWidth / 16; ++step) {
    const unsigned panel = step / 4 * Smem::kPanel, chunk = step % 4 << 5;
    unsigned k[4], q[4], b[4];
    load_matrix(k, (rows ^ chunk) + panel);
    if constexpr (Config::kOutput) load_matrix(q, (rows ^ chunk) + panel + Smem::kQ);
    load_matrix(b, (columns ^ chunk) + panel);
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      if constexpr (Config::kOutput)
        multiply_add(scores.p[c], q, b[2 * c], b[2 * c + 1], Element{});
      multiply_add(scores.r[c], k, b[2 * c], b[2 * c + 1], Element{});
    }
  }
}

// Diag(beta) R to the warp's triangle, and scale P as a first operand.
template <class Config>
__device__ __forceinline__ KdaSplit<typename Config::Element> KdaPreparing<Config>::split_scores(
    const Record& record, const float (&beta)[2], const KdaBlockScores& scores) const {
  const int lane = fresh_lane();
  const int token = lane / 4, t = lane % 4;
  const auto norm_of = [&](int row) {
    return Config::kL2Norm ? load_shared(record.small + Smem::kNormK + 4 * row) : 1.0f;
  };
  float p[2][4];
#pragma unroll
  for (int h = 0; h < 2; ++h) {  // rows
    const int row = token + 8 * h;
    const float row_scale =
        Config::kL2Norm ? load_shared(record.small + Smem::kScaleQ + 4 * row) : numbers.scale;
    const float row_beta = beta[h] * norm_of(row);
#pragma unroll
    for (int c = 0; c < 2; ++c) {  // halves of the columns
      float l[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int column = 2 * t + i + 8 * c;
        const float norm = norm_of(column);
        p[c][2 * h + i] = column > row ? 0.0f : row_scale * norm * scores.p[c][2 * h + i];
        l[i] = column >= row ? 0.0f : -row_beta * norm * scores.r[c][2 * h + i];
      }
      store_shared(triangle() + 4 * (row * Block::kLowerPitch + 8 * c + 2 * t), l[0], l[1]);
    }
  }
  return KdaSplit<Element>(p);
}

// Rows from the first one on that is not finite become zeros. Returns that row, or 16.
__device__ __forceinline__ int clear_bad_rows(float (&x)[16]) {
  int bad = 16;
#pragma unroll
  for (int i = 15; i >= 0; --i) {
    const bool finite = fabsf(x[i]) < bit_cast<float>(0x7f800000u);
    if (!__all_sync(0xffffffffu, finite)) bad = i;
  }
#pragma unroll
  for (int i = 0; i < 16; ++i) x[i] = i < bad ? x[i] : 0.0f;
  return bad;
}

// With M = (I + Diag(beta) R)^-1, kd becomes Diag(beta) M^T kd, and the square is scale P M
// Diag(beta): what a walker reads of v - ke h then needs no more to become values.
template <class Config>
__device__ __forceinline__ bool KdaPreparing<Config>::finish(const Record& record,
                                                             const KdaBlockScores& scores) const {
  const int lane = fresh_lane();
  const float beta[2] = {load_shared(triangle() + 4 * (lane / 4)),
                         load_shared(triangle() + 4 * (lane / 4 + 8))};
  float factor = load_shared(triangle() + 4 * (lane & 15));
  __syncwarp();  // every lane has its beta
  const KdaSplit<Element> p = split_scores(record, beta, scores);
  __syncwarp();  // the rows of R are there for every lane
  if constexpr (Config::kL2Norm) {
    factor *= load_shared(record.small + Smem::kNormK + 4 * (lane & 15));
  }
  float x[16];
  solve_lower<Config>(triangle(), lane, factor, x);
  float nothing = 0.0f;  // NaN if a number is not finite
#pragma unroll
  for (int i = 0; i < 16; ++i) nothing = __fmaf_rn(x[i], 0.0f, nothing);
  const bool bad = __any_sync(0xffffffffu, nothing != 0.0f) != 0;
  int bad_row = 16;
  if (bad) bad_row = clear_bad_rows(x);
  __syncwarp();  // every lane has read R
  store_columns<Config>(triangle(), lane, x);
  unsigned square = triangle();  // of the keys, whose norms count too
  if constexpr (Config::kL2Norm) {
    square = record.small + Smem::kInverse;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      x[i] *= load_shared(record.small + Smem::kNormK + 4 * i);
    }
    store_columns<Config>(square, lane, x);
  }
  __syncwarp();
  if constexpr (Config::kOutput) store_square(record, triangle(), p, bad_row);
  if constexpr (Config::kSaved) copy_square(record, triangle(), bad_row);
  multiply_keys(record, square);
  return !bad;
}

// M Diag(beta), to where walkers read it. Rows from a bad one on are not numbers.
template <class Config>
__device__ __forceinline__ void KdaPreparing<Config>::copy_square(const Record& record,
                                                                  unsigned inverse,
                                                                  int bad_row) const {
  const int at = 16 * fresh_lane();
  float four[4];
  load_shared(inverse + at, four);
  unsigned words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) words[i] = at / 32 < bad_row ? bit_cast<unsigned>(four[i]) : ~0u;
  store_shared(record.small + Smem::kMade + at, words);
}

// scale P M Diag(beta), to where walkers read it. Rows from a bad one on are not numbers.
template <class Config>
__device__ __forceinline__ void KdaPreparing<Config>::store_square(const Record& record,
                                                                   unsigned inverse,
                                                                   const KdaSplit<Element>& p,
                                                                   int bad_row) const {
  const int lane = fresh_lane();
  const int token = lane / 4, t = lane % 4;
  Fragment<Element> b;
  load_matrix_transposed(
      b.word[0], inverse + KdaSquare::offset(row_of_rows_first(lane), chunk_of_rows_first(lane)));
  float product[2][4] = {};
  multiply_add_split(product[0], product[1], p, b);
#pragma unroll
  for (int c = 0; c < 2; ++c) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      unsigned word = pack_pair(product[c][2 * h], product[c][2 * h + 1], Element{});
      if (token + 8 * h >= bad_row) word = 0xffffffffu;
      store_shared(record.small + Smem::kScores + KdaSquare::offset(token + 8 * h, c) + 4 * t,
                   word);
    }
  }
}

// kd becomes M^T kd.
template <class Config>
__device__ __forceinline__ void KdaPreparing<Config>::multiply_keys(const Record& record,
                                                                    unsigned inverse) const {
  const int lane = fresh_lane();
  unsigned turned[4];
  load_matrix_transposed(
      turned, inverse + KdaSquare::offset(row_of_chunks_first(lane), chunk_of_chunks_first(lane)));
  const unsigned columns =
      record.tile + Smem::kG + swizzled(row_of_rows_first(lane), chunk_of_rows_first(lane));
  // A panel is read before it is written: no load may pass a store.
#pragma unroll
  for (int panel = 0; panel < Smem::kPanels; ++panel) {
    const unsigned at = columns + panel * Smem::kPanel;
    unsigned kd[4][4];
#pragma unroll
    for (int step = 0; step < 4; ++step) load_matrix_transposed(kd[step], at ^ step << 5);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      unsigned word[4];
      float product[2][4] = {};
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        multiply_add(product[c], turned, kd[step][2 * c], kd[step][2 * c + 1], Element{});
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          word[2 * c + h] = pack_pair(product[c][2 * h], product[c][2 * h + 1], Element{});
        }
      }
      store_matrix(at ^ step << 5, word);
    }
  }
}

}  // namespace lathe
