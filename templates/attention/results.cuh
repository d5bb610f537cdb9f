// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The state that a tile of rows starts from, and what it stores at its end.
#pragma once
#include "attention/query_tile.cuh"
#include "attention/softmax.cuh"

namespace lathe {

// No key so far.
template <int kRowBlocks>
__device__ __forceinline__ void start_empty(RunningSoftmax<kRowBlocks>& softmax) {
#pragma unroll
  for (int b = 0; b < kRowBlocks; ++b) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      softmax.most[b][half] = minus_infinity(), softmax.sum[b][half] = 0.0f;
    }
  }
}

// out = o / l and lse = m + ln l of the warp's rows; rows past the sequence that the tile must
// write become 0 and -inf.
template <class Config, int kRowBlocks, int kOutTiles>
__device__ __forceinline__ void store_results(const AttentionForwardParams& p,
                                              const QueryTile& tile, float t_of_weights,
                                              const RunningSoftmax<kRowBlocks>& softmax,
                                              const float (&o)[kRowBlocks][kOutTiles][4]) {
  using Element = typename Config::Element;
  constexpr int kAlignment = kAlignmentOf<Config, Element>;
  const int thread = thread_index(), t = thread % 4;
  const WarpRows<Config> rows(tile);  // made again rather than held all the while
  Element* out =
      static_cast<Element*>(p.out) +
      sequence_offset<Config>(tile, p.out_batch_stride, p.out_token_stride, tile.start_q);
  float* lse = static_cast<float*>(p.lse);
#pragma unroll
  for (int b = 0; b < kRowBlocks; ++b) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int warp_row = rows.warp_row(b, half, thread);
      const int row = rows.query(tile, warp_row, thread), head = rows.head(tile, warp_row);
      const bool inside = row < tile.rows, written = row < tile.written;
      float sink = 0.0f;
      if constexpr (Config::kSinks) {
        if (inside) sink = load_element(static_cast<const float*>(p.sinks) + head);
      }
      const float sum = row_sum<Element>(softmax.sum[b][half]);
      RowEnd end = softmax_end<Config::kSinks>(softmax.most[b][half], sum, t_of_weights, sink);
      if (written && t == 0) {
        const long long lse_row =
            Config::kPacked ? static_cast<long long>(head) * p.seq_q + tile.start_q
                            : (static_cast<long long>(tile.sequence) * p.heads + head) * p.seq_q;
        store_element(lse + lse_row + row, inside ? end.lse : minus_infinity());
      }
      Element* to = out + row * p.out_token_stride + head * p.out_head_stride;
      const auto value = [&](int n, int c) { return row_end<Element>(o[b][n][2 * half + c], end); };
      if constexpr (sizeof(Element) == 4) {  // a quad stores 32 bytes of a row
#pragma unroll
        for (int n = 0; n < kOutTiles; ++n) {
          const float pair[2] = {inside ? value(n, 0) : 0.0f, inside ? value(n, 1) : 0.0f};
          const int column = n * 8 + t * 2;
          if (written && column < p.value_dim)
            store_aligned<kAlignment>(to + column, pack<f32, 8>(pair));
        }
      } else {
#pragma unroll
        for (int n = 0; n < kOutTiles; n += 4) {
          unsigned word[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            word[i] = inside ? pack_pair(value(n + i, 0), value(n + i, 1), Element{}) : 0u;
          }
          const Words<16> columns = turn_in_quad(word);
          const int column = (n + t) * 8;
          if (written && column < p.value_dim) store_aligned<kAlignment>(to + column, columns);
        }
      }
    }
  }
}

}  // namespace lathe
