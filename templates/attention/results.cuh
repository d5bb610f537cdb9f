// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The state that a tile of rows starts from, and what it stores at its end.
#pragma once
#include "attention/place.cuh"
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
                                              const AttentionTile& tile, float t_of_weights,
                                              const RunningSoftmax<kRowBlocks>& softmax,
                                              const float (&o)[kRowBlocks][kOutTiles][4]) {
  using Element = typename Config::Element;
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
      const int place = rows.place(b, half, thread);
      const int row = rows.query(tile, place, thread), head = rows.head(tile, place);
      const bool inside = row < tile.rows, written = row < tile.written;
      float sink = 0.0f;
      if constexpr (Config::kSinks) {
        if (inside) sink = load_element(static_cast<const float*>(p.sinks) + head);
      }
      const float sum = quad_sum(softmax.sum[b][half]);
      RowEnd end = softmax_end<Config::kSinks>(softmax.most[b][half], sum, t_of_weights, sink);
      if (written && t == 0) {
        const long long place =
            Config::kPacked ? static_cast<long long>(head) * p.seq_q + tile.start_q
                            : (static_cast<long long>(tile.sequence) * p.heads + head) * p.seq_q;
        store_element(lse + place + row, inside ? end.lse : minus_infinity());
      }
      Element* to = out + row * p.out_token_stride + head * p.out_head_stride;
#pragma unroll
      for (int n = 0; n < kOutTiles; n += 4) {
        unsigned word[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          word[i] = inside ? pack_pair(o[b][n + i][2 * half] * end.scale,
                                       o[b][n + i][2 * half + 1] * end.scale, Element{})
                           : 0u;
        }
        const Words<16> columns = turn_in_quad(word);
        const int column = (n + t) * 8;
        if (written && column < p.value_dim) store_global(to + column, columns);
      }
    }
  }
}

}  // namespace lathe
