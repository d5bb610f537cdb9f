// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// attention_backward_prepare: what the backward needs of each row and head beside q and dout.
//
//   lse2[i]  = lse[i] log2 e,                             +inf where lse is -inf: every p is then 0
//   delta[i] = sum_c dout[i, c] out[i, c] - dlse[i],      0 there
//   dsinks   = - sum_i exp(sink - lse[i]) delta[i]        a sink is a key of value 0: its dp is 0
//
// A block has kTileM rows of one head, 16 of them a warp. All blocks together also zero the sums of
// dq where that is asked for. Sums are in a fixed order.
#pragma once
#include "attention/backward/sink_sums.cuh"
#include "attention/softmax.cuh"
#include "common/varlen.cuh"
#include "params/attention_backward.h"

namespace lathe {

// Each warp has the sum of its dsinks there.
template <class Config>
struct AttentionBackwardPrepareSmem {
  static constexpr int kBytes = Config::kThreads / 8;
};

template <class Config>
struct PrepareRows {
  using Element = typename Config::Element;
  static constexpr int kWarps = Config::kThreads / 32;
  static constexpr int kAlignment = kAlignmentOf<Config, Element>;  // of out and dout
  static_assert(Config::kTileM % 16 == 0, "16 rows a warp");

  const AttentionBackwardPrepareParams& p;
  const int head, first, inside;  // rows of sequences end at `inside`

  // 32 columns of rows g and g + 8 from `row` on, g = lane / 4, as operands of two products: word
  // 2i + h of row r is its columns 16i + 8h + 2t and one more, t = lane % 4.
  __device__ __forceinline__ void read(const void* tensor, long long batch_stride,
                                       long long token_stride, long long head_stride, int row,
                                       int column, Words<16> (&to)[2]) const {
    column += threadIdx.x % 4 * 8;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int lane_row = row + 8 * half;
      Words<16> eight = {};
      if (lane_row < inside && column < p.value_dim) {
        const int b = Config::kPacked ? 0 : lane_row / p.seq_q;
        load_aligned<kAlignment>(
            static_cast<const Element*>(tensor) + b * batch_stride +
                (lane_row - static_cast<long long>(b) * p.seq_q) * token_stride +
                head * head_stride + column,
            eight);
      }
      to[half] = turn_in_quad(eight.word);
    }
  }
  // 16 columns of the same rows of float32: A's words are rows g and g + 8 in turn, B's first those
  // of row g.
  template <bool kIsA>
  __device__ __forceinline__ void read(const void* tensor, long long batch_stride,
                                       long long token_stride, long long head_stride, int row,
                                       int column, Fragment<f32>& to) const {
    column += threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int lane_row = row + (kIsA ? i % 2 : i / 2) * 8,
                at = column + (kIsA ? i / 2 : i % 2) * 8;
      Words<8> pair = {};
      if (lane_row < inside && at < p.value_dim) {
        const int b = Config::kPacked ? 0 : lane_row / p.seq_q;
        load_aligned<kAlignment>(
            static_cast<const float*>(tensor) + b * batch_stride +
                (lane_row - static_cast<long long>(b) * p.seq_q) * token_stride +
                head * head_stride + at,
            pair);
      }
      unsigned plane[3];
      split_any_pair(bit_cast<float>(pair.word[0]), bit_cast<float>(pair.word[1]), plane);
      to.word[0][i] = plane[0], to.word[1][i] = plane[1], to.word[2][i] = plane[2];
    }
  }
  // sum_c dout out of 16 rows: those of rows g and g + 8 are c[g % 2] and c[2 + g % 2] of the lane
  // with t = g / 2. The matrix instruction adds up as it does for dp = dout . v: for a row of one
  // key out is v and the two are equal bit for bit, so that dq and dk of such rows are 0.
  __device__ __forceinline__ void row_dots(int row, float (&upper)[4], float (&lower)[4]) const {
    if constexpr (Operand<Element>::kPlanes > 1) {
#pragma unroll 1
      for (int column = 0; column < Config::kValueWidth; column += 16) {
        Fragment<f32> out, dout;
        read<true>(p.out, p.out_batch_stride, p.out_token_stride, p.out_head_stride, row, column,
                   out);
        read<false>(p.dout, p.dout_batch_stride, p.dout_token_stride, p.dout_head_stride, row,
                    column, dout);
        multiply_add_pair(upper, lower, out, dout);
      }
    } else {
#pragma unroll 2
      for (int column = 0; column < Config::kValueWidth; column += 32) {
        Words<16> out[2], dout[2];
        read(p.out, p.out_batch_stride, p.out_token_stride, p.out_head_stride, row, column, out);
        read(p.dout, p.dout_batch_stride, p.dout_token_stride, p.dout_head_stride, row, column,
             dout);
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
          const unsigned a[4] = {out[0].word[i], out[1].word[i], out[0].word[i + 1],
                                 out[1].word[i + 1]};
          multiply_add(upper, a, dout[0].word[i], dout[0].word[i + 1], Element{});
          multiply_add(lower, a, dout[1].word[i], dout[1].word[i + 1], Element{});
        }
      }
    }
  }
  // Writes lse2 and delta of a row; its term of dsinks.
  __device__ __forceinline__ float finish_row(int row, float dot, float sink) const {
    float lse = minus_infinity(), delta = 0.0f;
    const int b = Config::kPacked ? 0 : row / p.seq_q;
    const long long lse_row = (static_cast<long long>(b) * p.heads + head) * p.seq_q + row -
                              static_cast<long long>(b) * p.seq_q;
    if (row < inside) lse = load_element(static_cast<const float*>(p.lse) + lse_row);
    if (lse != minus_infinity()) {
      delta = dot;
      if constexpr (Config::kDlse) {
        delta -= load_element(static_cast<const float*>(p.dlse) + lse_row);
      }
    }
    const float lse2 = lse == minus_infinity() ? -minus_infinity() : __fmul_rn(lse, kLog2E);
    const long long at = b * p.row_batch_stride + head * p.row_head_stride + row -
                         static_cast<long long>(b) * p.seq_q;
    store_element(static_cast<float*>(p.lse2) + at, lse2);
    store_element(static_cast<float*>(p.delta) + at, delta);
    // A sink of +inf has all weight; rows that are not there have a delta of 0.
    const float weight =
        sink == -minus_infinity() ? 1.0f : ex2_flushed(__fmaf_rn(sink, kLog2E, -lse2));
    return -weight * delta;
  }

  // Returns the lane's part of dsinks.
  __device__ __forceinline__ float run(float sink) const {
    const int lane = threadIdx.x % 32, g = lane / 4;
    float dsink = 0.0f;
#pragma unroll 1
    for (int r = threadIdx.x / 32 * 16; r < Config::kTileM; r += 16 * kWarps) {
      const int row = first + r + g;
      float upper[4] = {}, lower[4] = {};
      row_dots(row, upper, lower);
      const bool mine = lane % 4 == g / 2;
      if (mine && row < p.rows) dsink += finish_row(row, g % 2 ? upper[1] : upper[0], sink);
      if (mine && row + 8 < p.rows) dsink += finish_row(row + 8, g % 2 ? lower[3] : lower[2], sink);
    }
    return dsink;
  }

  // The block's share of the sums of dq.
  __device__ __forceinline__ void zero_dq() const {
    const Words<16> zero = {};
    const long long step = static_cast<long long>(gridDim.x) * Config::kThreads;
    long long at = static_cast<long long>(blockIdx.x) * Config::kThreads + threadIdx.x;
    for (; at < p.dq_words; at += step) store_global(static_cast<Words<16>*>(p.dq) + at, zero);
  }
};

template <class Config>
__device__ void attention_backward_prepare(const AttentionBackwardPrepareParams& p) {
  extern __shared__ float dsinks[];
  const int tile = static_cast<int>(blockIdx.x % p.tiles);
  const int head = static_cast<int>(blockIdx.x / p.tiles);
  int inside = p.rows;
  if constexpr (Config::kPacked) {
    using Offset = typename Config::CuSeqlens;
    inside = p.sequences > 0 ? offset_at<Offset>(p.cu_seqlens_q, p.sequences, p.seq_q) : 0;
  }
  float sink = minus_infinity();
  if constexpr (Config::kSinks) sink = load_element(static_cast<const float*>(p.sinks) + head);
  const PrepareRows<Config> rows = {p, head, tile * Config::kTileM, inside};
  rows.zero_dq();
  const float dsink = rows.run(sink);
  if constexpr (Config::kSinks)
    store_sink_part<Config>(dsink, dsinks, p.dsinks_parts,
                            static_cast<long long>(tile) * p.heads + head);
}

}  // namespace lathe
