// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// sparse_backward_prepare: what the backward of sparse attention needs beside its inputs.
//
//   delta[i, h] = sum_c dout[i, h, c] out[i, h, c]         0 where lse is -inf: no key, or padding
//   dsinks[h]   = - sum_i exp(sink[h] - lse[i, h]) delta   a sink is a key of value 0: its dp is 0
//
// A block has kTileM rows of one head, 16 of them a warp, and leaves its part of dsinks; further
// blocks zero memory. Sums are in a fixed order. With kTerms the terms of rows are left as they
// are.
#pragma once
#include "attention/backward/sink_sums.cuh"
#include "attention/softmax.cuh"
#include "params/sparse_attention.h"

namespace lathe {

template <class Config, class = void>
struct LeavesTerms {
  static constexpr bool kValue = false;
};
template <class Config>
struct LeavesTerms<Config, decltype(static_cast<void>(Config::kTerms))> {
  static constexpr bool kValue = true;
};

// Each warp has the sum of its dsinks there.
template <class Config>
struct SparseBackwardPrepareSmem {
  static constexpr int kBytes = Config::kThreads / 8;
};

template <class Config>
struct SparseDelta {
  using Element = typename Config::Element;
  static constexpr int kGroups = Config::kGroups, kWarps = Config::kThreads / 32;
  static_assert(Config::kTileM % 16 == 0, "16 rows a warp");

  const SparseBackwardPrepareParams& p;
  const int head;

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
      if (lane_row < p.rows && column < p.value_dim) {
        const int b = lane_row / p.seq_q;
        load_global(static_cast<const Element*>(tensor) + b * batch_stride +
                        (lane_row - static_cast<long long>(b) * p.seq_q) * token_stride +
                        head * head_stride + column,
                    eight);
      }
      to[half] = turn_in_quad(eight.word);
    }
  }
  // sum_c dout out of 16 rows: those of rows g and g + 8 are upper[g % 2] and lower[2 + g % 2] of
  // the lane with t = g / 2. The products and sums are those of dp = dout . v, in the same order,
  // by groups of columns: for a row of one key out is v and the two are equal bit for bit, so that
  // dq and dk of such rows are 0.
  __device__ __forceinline__ void deltas(int row, float (&upper)[4], float (&lower)[4]) const {
    float sum[kGroups][2][4] = {};
#pragma unroll
    for (int column = 0; column < Config::kValueWidth; column += 32) {
      Words<16> out[2], dout[2];
      read(p.out, p.out_batch_stride, p.out_token_stride, p.out_head_stride, row, column, out);
      read(p.dout, p.dout_batch_stride, p.dout_token_stride, p.dout_head_stride, row, column, dout);
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const unsigned a[4] = {dout[0].word[i], dout[1].word[i], dout[0].word[i + 1],
                               dout[1].word[i + 1]};
        float(&row_sum)[2][4] = sum[(column / 16 + i / 2) % kGroups];
        multiply_add(row_sum[0], a, out[0].word[i], out[0].word[i + 1], Element{});
        multiply_add(row_sum[1], a, out[1].word[i], out[1].word[i + 1], Element{});
      }
    }
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        upper[i] = group == 0 ? sum[0][0][i] : __fadd_rn(upper[i], sum[group][0][i]);
        lower[i] = group == 0 ? sum[0][1][i] : __fadd_rn(lower[i], sum[group][1][i]);
      }
    }
  }
  // Writes delta of a row; its term of dsinks.
  __device__ __forceinline__ float finish_row(int row, float delta, float sink) const {
    const int b = row / p.seq_q;
    const long long at = (static_cast<long long>(b) * p.heads + head) * p.seq_q + row -
                         static_cast<long long>(b) * p.seq_q;
    const float lse = load_element(static_cast<const float*>(p.lse) + at);
    const bool empty = lse == minus_infinity();
    store_element(static_cast<float*>(p.delta) + static_cast<long long>(row) * p.heads + head,
                  empty ? 0.0f : delta);
    // A sink of +inf has all weight.
    const float weight = sink == lse ? 1.0f : ex2_flushed(__fmul_rn(__fsub_rn(sink, lse), kLog2E));
    const float term = empty ? 0.0f : -weight * delta;
    if constexpr (LeavesTerms<Config>::kValue) {
      store_element(
          static_cast<float*>(p.dsinks_parts) + static_cast<long long>(row) * p.heads + head, term);
    }
    return term;
  }
  // Returns the lane's part of dsinks.
  __device__ __forceinline__ float run(int first, float sink) const {
    const int lane = threadIdx.x % 32, g = lane / 4;
    float dsink = 0.0f;
#pragma unroll 1
    for (int r = threadIdx.x / 32 * 16; r < Config::kTileM; r += 16 * kWarps) {
      const int row = first + r + g;
      float upper[4], lower[4];
      deltas(row, upper, lower);
      const bool mine = lane % 4 == g / 2;
      if (mine && row < p.rows) dsink += finish_row(row, g % 2 ? upper[1] : upper[0], sink);
      if (mine && row + 8 < p.rows) dsink += finish_row(row + 8, g % 2 ? lower[3] : lower[2], sink);
    }
    return dsink;
  }
};

// Each thread some pieces of 16 bytes.
template <class Config>
__device__ __forceinline__ void zero_chunks(const SparseBackwardPrepareParams& p, long long block) {
  constexpr int kZeroChunks = 8;
  long long chunk = block * (kZeroChunks * Config::kThreads) + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kZeroChunks; ++i, chunk += Config::kThreads) {
    if (chunk < p.zero_chunks) store_global(static_cast<Words<16>*>(p.zeroed) + chunk, Words<16>{});
  }
}

template <class Config>
__device__ void sparse_backward_prepare(const SparseBackwardPrepareParams& p) {
  extern __shared__ float dsinks[];
  const long long rows_of_blocks = static_cast<long long>(p.tiles) * p.heads;
  if (blockIdx.x >= rows_of_blocks) return zero_chunks<Config>(p, blockIdx.x - rows_of_blocks);
  const int tile = static_cast<int>(blockIdx.x / p.heads);
  const int head = static_cast<int>(blockIdx.x % p.heads);
  float sink = minus_infinity();
  if constexpr (Config::kSinks) sink = load_element(static_cast<const float*>(p.sinks) + head);
  const float dsink = SparseDelta<Config>{p, head}.run(tile * Config::kTileM, sink);
  if constexpr (Config::kSinks && !LeavesTerms<Config>::kValue) {
    store_sink_part<Config>(dsink, dsinks, p.dsinks_parts, blockIdx.x);
  }
}

}  // namespace lathe
