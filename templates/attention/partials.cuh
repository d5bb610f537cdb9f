// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A warp's rows begin with the partial result in memory, float32 (out, lse), and end as the one
// that counts the keys since as well. An empty partial has lse = -inf, and its out is not read.
#pragma once
#include "attention/query_tile.cuh"
#include "attention/softmax.cuh"

namespace lathe {

// A PartialRow says where row `row` of the tile's head is in out and lse, in the tile's row of the
// batch.
struct PartialRow {
  float* out;
  float* lse;

  __device__ __forceinline__ PartialRow(const AttentionForwardParams& p, const QueryTile& tile,
                                        int row)
      : out(static_cast<float*>(p.out) + tile.sequence * p.out_batch_stride +
            row * p.out_token_stride + tile.head * p.out_head_stride),
        lse(static_cast<float*>(p.lse) +
            (static_cast<long long>(tile.sequence) * p.heads + tile.head) * p.seq_q + row) {}
  // The maximum that a state begins with, in the units of the softmax.
  __device__ __forceinline__ float most(const AttentionBlockParams& p, bool inside, float t) const {
    if (!inside || p.first) return minus_infinity();
    const float start = *lse;  // this grid writes it, so not through the read-only path
    return start == minus_infinity() ? start : start * kLog2E / t;
  }
};

template <class Config, int kRowBlocks, int kOutTiles>
__device__ __forceinline__ void start_partial(const AttentionBlockParams& p, const QueryTile& tile,
                                              float t_of_weights,
                                              RunningSoftmax<kRowBlocks>& softmax,
                                              float (&o)[kRowBlocks][kOutTiles][4]) {
  const int thread = thread_index(), t = thread % 4;
  const WarpRows<Config> rows(tile);
#pragma unroll
  for (int b = 0; b < kRowBlocks; ++b) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = rows.query(tile, rows.warp_row(b, half, thread), thread);
      const PartialRow at(p.forward, tile, row);
      const float most = at.most(p, row < tile.rows, t_of_weights);
      const bool any = most != minus_infinity();
      softmax.most[b][half] = most;
      // The sum of the row is in every lane or in one of its four: see row_sum.
      const bool holds_sum = kSumsInProduct<typename Config::Element> || t == 0;
      softmax.sum[b][half] = any && holds_sum ? 1.0f : 0.0f;
#pragma unroll
      for (int n = 0; n < kOutTiles; ++n) {
        const int column = 8 * n + 2 * t;
        float2 pair = make_float2(0.0f, 0.0f);
        if (any && column < p.forward.value_dim) {
          pair = load_written_pair<kAlignmentOf<Config, float>>(at.out + column);
        }
        o[b][n][2 * half] = pair.x, o[b][n][2 * half + 1] = pair.y;
      }
    }
  }
}

// Rows that saw no key, or none that weighs anything, are left as they are, to the bit.
template <class Config, int kRowBlocks, int kOutTiles>
__device__ __forceinline__ void store_partial(const AttentionBlockParams& p, const QueryTile& tile,
                                              float t_of_weights,
                                              const RunningSoftmax<kRowBlocks>& softmax,
                                              const float (&o)[kRowBlocks][kOutTiles][4]) {
  using Element = typename Config::Element;
  const int thread = thread_index(), t = thread % 4;
  const WarpRows<Config> rows(tile);
#pragma unroll
  for (int b = 0; b < kRowBlocks; ++b) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = rows.query(tile, rows.warp_row(b, half, thread), thread);
      const PartialRow at(p.forward, tile, row);
      const float begun = at.most(p, row < tile.rows, t_of_weights);
      const float most = softmax.most[b][half], sum = row_sum<Element>(softmax.sum[b][half]);
      const bool same = most == begun && sum == (begun == minus_infinity() ? 0.0f : 1.0f);
      const RowEnd end = softmax_end<false>(most, sum, t_of_weights, 0.0f);
      const bool written = row < tile.rows && (!same || p.first);
      __syncwarp();  // the lanes of the row have read lse
      if (written && t == 0) store_element(at.lse, end.lse);
#pragma unroll
      for (int n = 0; n < kOutTiles; ++n) {
        const int column = 8 * n + 2 * t;
        if (written && column < p.forward.value_dim) {
          store_written_pair<kAlignmentOf<Config, float>>(
              at.out + column, make_float2(row_end<Element>(o[b][n][2 * half], end),
                                           row_end<Element>(o[b][n][2 * half + 1], end)));
        }
      }
    }
  }
}

}  // namespace lathe
