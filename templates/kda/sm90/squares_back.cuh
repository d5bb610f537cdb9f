// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The same for the walk back, which adds rows of queries and of keys to the state's gradient, and
// reads it by the keys as they are. With r = kd dh and W = M Diag(beta) ke, of
// kda_backward_scan.cuh
//
//   y = M^T (scale P^T do + r) = (scale P M)^T do + M^T r
//   dh = Diag(decay) dh + scale qg^T do - ke^T Diag(beta) y
//      = Diag(decay) dh + (scale (qg - P W))^T do - W^T r
//
// so that a walker's chain has two products here too, and y is no part of it. Where the walk keeps
// s y, with s = kda_row_scale(beta), the columns of M have the factor s, and its rows of keys and
// queries what is left of beta.
#pragma once
#include "kda/sm90/preparer.cuh"

namespace lathe {

// A square as a first operand, its columns times `factor`: of columns 2 t, 2 t + 1 and 8 more.
template <class Config>
__device__ __forceinline__ void KdaPreparing<Config>::load_scaled(unsigned square,
                                                                  const float (&factor)[4],
                                                                  unsigned (&to)[4]) const {
  const int lane = fresh_lane();
  load_matrix(to, square + KdaSquare::offset(row_of_rows_first(lane), chunk_of_rows_first(lane)));
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float x, y;
    unpack_pair(to[i], Element{}, x, y);
    to[i] = pack_pair(x * factor[i / 2 * 2], y * factor[i / 2 * 2 + 1], Element{});
  }
}

// scale P M and M to where walkers read them, the rows of M with the keys' norms; rows of keys and
// of queries by them.
template <class Config>
__device__ __forceinline__ bool KdaPreparing<Config>::finish_back(
    const Record& record, const KdaBlockScores& scores) const {
  const int lane = fresh_lane();
  const float beta[2] = {load_shared(triangle() + 4 * (lane / 4)),
                         load_shared(triangle() + 4 * (lane / 4 + 8))};
  float scale = 1.0f;
  if constexpr (KdaRowsByBeta<Config>::kThere) {
    scale = kda_row_scale(load_shared(triangle() + 4 * (lane & 15)));
  }
  if (lane < 16) {  // nobody reads lengths in a walk back
    float factor = load_shared(triangle() + 4 * lane);
    if (scale == factor) factor = 1.0f;
    if constexpr (Config::kL2Norm) factor *= load_shared(record.small + Smem::kNormK + 4 * lane);
    store_shared(record.small + Smem::kLengthK + 4 * lane, factor);
  }
  __syncwarp();  // every lane has its betas
  const KdaSplit<Element> p = split_scores(record, beta, scores);
  __syncwarp();  // the rows of R are there for every lane
  float x[16];
  solve_lower<Config>(triangle(), lane, scale, x);
  float nothing = 0.0f;  // NaN if a number is not finite
#pragma unroll
  for (int i = 0; i < 16; ++i) nothing = __fmaf_rn(x[i], 0.0f, nothing);
  const bool bad = __any_sync(0xffffffffu, nothing != 0.0f) != 0;
  int bad_row = 16;
  if (bad) bad_row = clear_bad_rows(x);
  __syncwarp();  // every lane has read R
  store_columns<Config>(triangle(), lane, x);
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    if constexpr (Config::kL2Norm) x[i] *= load_shared(record.small + Smem::kNormK + 4 * i);
    if (i >= bad_row) x[i] = bit_cast<float>(0x7fffffffu);
  }
  store_columns<Config>(record.small + Smem::kInverse, lane, x);
  __syncwarp();
  store_square(record, triangle(), p, bad_row);
  __syncwarp();
  multiply_rows(record);
  return !bad;
}

// ke becomes W, and qg scale (qg - P W), 16 columns at a time.
template <class Config>
__device__ __forceinline__ void KdaPreparing<Config>::multiply_rows(const Record& record) const {
  const int lane = fresh_lane();
  float factor[4];
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    load_shared(record.small + Smem::kLengthK + 4 * (4 * i + 2 * (lane % 4)), factor[i],
                factor[i + 1]);
  }
  unsigned keys[4], queries[4];
  load_scaled(record.small + Smem::kInverse, factor, keys);
  load_scaled(record.small + Smem::kScores, factor, queries);
  float scale[2] = {numbers.scale, numbers.scale};
  if constexpr (Config::kL2Norm) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      scale[h] = load_shared(record.small + Smem::kScaleQ + 4 * (lane / 4 + 8 * h));
    }
  }
  const unsigned rows = record.tile + swizzled(row_of_rows_first(lane), chunk_of_rows_first(lane));
#pragma unroll
  for (int step = 0; step < Config::kWidth / 16; ++step) {
    const unsigned at = (rows ^ step % 4 << 5) + step / 4 * Smem::kPanel;
    unsigned ke[4], qg[4], words[2][4];
    load_matrix_transposed(ke, at);
    load_matrix(qg, at + Smem::kQ);
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float w[4] = {}, q[4];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        unpack_pair(qg[2 * c + h], Element{}, q[2 * h], q[2 * h + 1]);
        q[2 * h] *= scale[h], q[2 * h + 1] *= scale[h];
      }
      multiply_add(w, keys, ke[2 * c], ke[2 * c + 1], Element{});
      multiply_add(q, queries, ke[2 * c], ke[2 * c + 1], Element{});
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        words[0][2 * c + h] = pack_pair(w[2 * h], w[2 * h + 1], Element{});
        words[1][2 * c + h] = pack_pair(q[2 * h], q[2 * h + 1], Element{});
      }
    }
    store_matrix(at, words[0]);
    store_matrix(at + Smem::kQ, words[1]);
  }
}

}  // namespace lathe
