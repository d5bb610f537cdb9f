// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// attention_forward: softmax(scores) V without the scores ever being in memory.
//
//   x[i, j] = softmax_scale q[i] . k[j];  x = softcap tanh(x / softcap);  x -= slope |i + off - j|
//   kept    : the keys of params/attention.h, others -inf
//   l[i]    = sum_j exp(x[i, j] - m[i]) (+ exp(sink - m[i])),  m[i] the largest of them
//   out[i]  = sum_j exp(x[i, j] - m[i]) v[j] / l[i],           lse[i] = m[i] + ln l[i]
//
// A block owns kTileM query rows and visits key blocks from the right to the left; a warp owns 16
// or 32 of its rows, with their scores and sums in registers. The online softmax is that of Dao et
// al., FlashAttention-2. With kPackGqa, tile row r is query r / G of head r % G of a key head's G.
#pragma once
#include "attention/scores.cuh"
#include "attention/softmax.cuh"
#include "attention/tile.cuh"
#include "params/attention.h"

namespace lathe {

// [Q][kStages tiles of K][kStages tiles of V], from the first copy to the last product.
template <class Config>
struct AttentionForwardSmem {
  static constexpr int kQ = 2 * Config::kTileM * Config::kWidth;
  static constexpr int kK = 2 * Config::kTileN * Config::kWidth;
  static constexpr int kV = 2 * Config::kTileN * Config::kValueWidth;
  static constexpr int kBytes = kQ + Config::kStages * (kK + kV);
};

template <class Config>
struct AttentionForwardShape {
  static constexpr int kWarps = Config::kThreads / 32;
  static constexpr int kRowBlocks = Config::kTileM / (16 * kWarps);  // of 16 rows, per warp
  static constexpr int kKeyTiles = Config::kTileN / 8;
  static constexpr int kOutTiles = Config::kValueWidth / 8;
  static constexpr int kSteps = Config::kWidth / 16;
  // The query stays in registers where it fits beside the sums.
  static constexpr bool kKeepQ = kRowBlocks * kSteps * 4 <= 32;
  // A panel or half of one at a time where the query is not kept: unrolled further, the compiler
  // reads so far ahead that it spills. Found by trial.
  static constexpr int kUnroll = kKeepQ || Config::kWidth % 64 != 0  ? kSteps
                                 : Config::kPacked || Config::kLocal ? 4
                                                                     : 2;
  static_assert(kRowBlocks >= 1 && Config::kTileM % (16 * kWarps) == 0, "16 rows for every warp");
  static_assert(Config::kStages == 1 || Config::kStages == 2, "one stage or two");
};

template <class Config>
struct AttentionForward {
  using Element = typename Config::Element;
  using Shape = AttentionForwardShape<Config>;
  using Smem = AttentionForwardSmem<Config>;
  static constexpr int kRowBlocks = Shape::kRowBlocks, kTileN = Config::kTileN;

  const AttentionForwardParams& p;
  const AttentionTile& tile;
  const unsigned q_tile, k_tile, v_tile;
  const Element* const k;  // key 0 of the sequence and head
  const Element* const v;

  __device__ __forceinline__ AttentionForward(const AttentionForwardParams& params,
                                              const AttentionTile& place, unsigned shared)
      : p(params),
        tile(place),
        q_tile(shared),
        k_tile(shared + Smem::kQ),
        v_tile(shared + Smem::kQ + Config::kStages * Smem::kK),
        k(static_cast<const Element*>(p.k) +
          sequence_offset(p.k_batch_stride, p.k_token_stride, place.start_k) +
          place.kv_head * p.k_head_stride),
        v(static_cast<const Element*>(p.v) +
          sequence_offset(p.v_batch_stride, p.v_token_stride, place.start_k) +
          place.kv_head * p.v_head_stride) {}

  __device__ __forceinline__ long long sequence_offset(long long batch_stride,
                                                       long long token_stride, int start) const {
    return Config::kPacked ? start * token_stride : tile.sequence * batch_stride;
  }
  // Tile row r of a tensor of queries.
  __device__ __forceinline__ long long query_offset(int r, long long token_stride,
                                                    long long head_stride) const {
    const int row = tile.first + r;
    if constexpr (Config::kPackGqa) {
      return row / tile.group * token_stride +
             (tile.head * tile.group + row % tile.group) * head_stride;
    }
    return row * token_stride + tile.head * head_stride;
  }

  static __device__ __forceinline__ int stage(int block) {
    return Config::kStages == 1 ? 0 : block % 2;
  }
  __device__ __forceinline__ void copy_q() const {
    const Element* q = static_cast<const Element*>(p.q) +
                       sequence_offset(p.q_batch_stride, p.q_token_stride, tile.start_q);
    const long long rows = static_cast<long long>(tile.rows) * (Config::kPackGqa ? tile.group : 1);
    copy_tile<Config::kTileM, Config::kWidth, Config::kThreads>(
        q_tile, q, saturate(rows - tile.first), p.head_dim,
        [&](int r) { return query_offset(r, p.q_token_stride, p.q_head_stride); });
  }
  __device__ __forceinline__ void copy_k(int block) const {
    const int key = in_place(block) * kTileN;
    copy_tile<kTileN, Config::kWidth, Config::kThreads>(
        k_tile + stage(block) * Smem::kK, k, tile.keys - key, p.head_dim,
        [&](int r) { return (key + r) * p.k_token_stride; });
  }
  __device__ __forceinline__ void copy_v(int block) const {
    const int key = in_place(block) * kTileN;
    copy_tile<kTileN, Config::kValueWidth, Config::kThreads>(
        v_tile + stage(block) * Smem::kV, v, tile.keys - key, p.value_dim,
        [&](int r) { return (key + r) * p.v_token_stride; });
  }

  template <AttentionMask kMask, class Fragments, class Sums>
  __device__ __forceinline__ void step(int block, int last_block, const Fragments& q_kept,
                                       const ScoreUnits<Config>& units,
                                       const WarpRows<Config>& rows, const KeyWindow& window,
                                       RunningSoftmax<kRowBlocks>& softmax, Sums& o) const;
  template <class Sums>
  __device__ __forceinline__ void store(const ScoreUnits<Config>& units,
                                        const RunningSoftmax<kRowBlocks>& softmax,
                                        const Sums& o) const;
  __device__ __forceinline__ void run() const;
};

// One key block. With two stages, K of the next block is on its way during all of this one, and V
// from the middle on; with one, each is refilled while the other is in use.
template <class Config>
template <AttentionMask kMask, class Fragments, class Sums>
__device__ __forceinline__ void AttentionForward<Config>::step(
    int block, int last_block, const Fragments& q_kept, const ScoreUnits<Config>& units,
    const WarpRows<Config>& rows, const KeyWindow& window, RunningSoftmax<kRowBlocks>& softmax,
    Sums& o) const {
  constexpr int kPending = Config::kStages - 1;
  const int thread = thread_index(), lane = thread % 32, warp = thread / 32;
  const bool more = in_place(block) > last_block;

  copy_async_wait<kPending>();
  __syncthreads();  // K is there for all; all have left the stage that is refilled next
  if constexpr (Config::kStages == 1) {
    copy_v(block);
  } else if (more) {
    copy_k(block - 1);
  }
  copy_async_commit();

  float s[kRowBlocks][Shape::kKeyTiles][4] = {};
  const auto q_reader = read_rows_first<Config::kTileM, Config::kWidth>(q_tile, lane);
  const auto k_reader =
      read_columns_first<kTileN, Config::kWidth>(k_tile + stage(in_place(block)) * Smem::kK, lane);
#pragma unroll Shape::kUnroll
  for (int d = 0; d < Shape::kSteps; ++d) {  // s += q k^T
    unsigned q[kRowBlocks][4];
#pragma unroll
    for (int b = 0; b < kRowBlocks; ++b) {
      if constexpr (Shape::kKeepQ) {
#pragma unroll
        for (int i = 0; i < 4; ++i) q[b][i] = q_kept[b][d][i];
      } else {
        load_matrix(q[b], q_reader.at(warp * kRowBlocks + b, d));
      }
    }
#pragma unroll
    for (int n = 0; n < Shape::kKeyTiles; n += 2) {
      unsigned keys[4];
      load_matrix(keys, k_reader.at(n / 2, d));
#pragma unroll
      for (int b = 0; b < kRowBlocks; ++b) {
        multiply_add(s[b][n], q[b], keys[0], keys[1], Element{});
        multiply_add(s[b][n + 1], q[b], keys[2], keys[3], Element{});
      }
    }
  }
  modify_scores<Config, kMask>(s, units, rows, tile, window, block * kTileN);
  unsigned weights[kRowBlocks][Shape::kKeyTiles / 2][4];
  softmax_step<Element, kMask != AttentionMask::none>(s, units.t, softmax, o, weights);

  copy_async_wait<kPending>();
  __syncthreads();  // V is there for all; all have left K, and with two stages V of the last block
  if (more) {
    if constexpr (Config::kStages == 1) {
      copy_k(block - 1);
    } else {
      copy_v(block - 1);
    }
  }
  copy_async_commit();

  const auto v_reader = read_rows_first<kTileN, Config::kValueWidth>(
      v_tile + stage(in_place(block)) * Smem::kV, thread_index() % 32);
#pragma unroll
  for (int j = 0; j < Shape::kKeyTiles / 2; ++j) {  // o += weights v
#pragma unroll
    for (int n = 0; n < Shape::kOutTiles; n += 2) {
      unsigned values[4];
      load_matrix_transposed(values, v_reader.at(j, n / 2));
#pragma unroll
      for (int b = 0; b < kRowBlocks; ++b) {
        multiply_add(o[b][n], weights[b][j], values[0], values[1], Element{});
        multiply_add(o[b][n + 1], weights[b][j], values[2], values[3], Element{});
      }
    }
  }
}

template <class Config>
template <class Sums>
__device__ __forceinline__ void AttentionForward<Config>::store(
    const ScoreUnits<Config>& units, const RunningSoftmax<kRowBlocks>& softmax,
    const Sums& o) const {
  const int thread = thread_index(), t = thread % 4;
  const WarpRows<Config> rows(tile);  // made again rather than held all the while
  Element* out = static_cast<Element*>(p.out) +
                 sequence_offset(p.out_batch_stride, p.out_token_stride, tile.start_q);
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
      RowEnd end = softmax_end<Config::kSinks>(softmax.most[b][half], sum, units.t, sink);
      if (written && t == 0) {
        const long long place =
            Config::kPacked ? static_cast<long long>(head) * p.seq_q + tile.start_q
                            : (static_cast<long long>(tile.sequence) * p.heads + head) * p.seq_q;
        store_element(lse + place + row, inside ? end.lse : minus_infinity());
      }
      Element* to = out + row * p.out_token_stride + head * p.out_head_stride;
#pragma unroll
      for (int n = 0; n < Shape::kOutTiles; n += 4) {
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

template <class Config>
__device__ __forceinline__ void AttentionForward<Config>::run() const {
  const int thread = thread_index(), lane = thread % 32, warp = thread / 32;
  const WarpRows<Config> rows(tile);
  const ScoreUnits<Config> units(p, tile, rows);
  const KeyWindow window = key_window(tile.rows, tile.keys, Config::kLocal ? p.window_left : -1,
                                      Config::kLocal ? p.window_right : -1);
  const int group = Config::kPackGqa ? tile.group : 1;
  const int first = tile.first / group;
  const int last = minimum((tile.first + Config::kTileM - 1) / group, tile.rows - 1);
  BlockRange range = {0, 0, 0, 0};
  if (first < tile.rows) range = block_range<kTileN>(window, first, last);

  float o[kRowBlocks][Shape::kOutTiles][4] = {};
  RunningSoftmax<kRowBlocks> softmax;
#pragma unroll
  for (int b = 0; b < kRowBlocks; ++b) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      softmax.most[b][half] = minus_infinity(), softmax.sum[b][half] = 0.0f;
    }
  }
  if (range.begin < range.end) {
    int block = range.end - 1;
    copy_q();
    if constexpr (Shape::kKeepQ) copy_async_commit();
    copy_k(block);
    copy_async_commit();
    if constexpr (Config::kStages == 2) {
      copy_v(block);
      copy_async_commit();
    }
    unsigned q[kRowBlocks][Shape::kKeepQ ? Shape::kSteps : 1][4];
    if constexpr (Shape::kKeepQ) {
      copy_async_wait<Config::kStages>();
      __syncthreads();  // Q is there for all
      const auto reader = read_rows_first<Config::kTileM, Config::kWidth>(q_tile, lane);
#pragma unroll
      for (int b = 0; b < kRowBlocks; ++b) {
#pragma unroll
        for (int d = 0; d < Shape::kSteps; ++d) {
          load_matrix(q[b][d], reader.at(warp * kRowBlocks + b, d));
        }
      }
    }
#pragma unroll 1
    for (; block >= range.right; --block) {
      step<AttentionMask::both>(block, range.begin, q, units, rows, window, softmax, o);
    }
#pragma unroll 1
    for (; block >= range.left; --block) {
      step<AttentionMask::none>(block, range.begin, q, units, rows, window, softmax, o);
    }
    if constexpr (Config::kLocal) {
#pragma unroll 1
      for (; block >= range.begin; --block) {
        step<AttentionMask::left>(block, range.begin, q, units, rows, window, softmax, o);
      }
    }
  }
  store(units, softmax, o);
}

template <class Config>
__device__ void attention_forward(const AttentionForwardParams& p) {
  extern __shared__ __align__(1024) float4 shared[];
  const AttentionTile tile = attention_tile<Config>(p);
  // Capacity, not length, made the grid: most tiles of a short sequence have nothing to write.
  const int group = Config::kPackGqa ? tile.group : 1;
  if (tile.first / group >= tile.written) return;
  AttentionForward<Config>(p, tile, shared_address(shared)).run();
}

}  // namespace lathe
