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
#include "attention/keys.cuh"
#include "attention/results.cuh"
#include "attention/scores.cuh"
#include "params/attention.h"

namespace lathe {

// [Q][kStages tiles of K][kStages tiles of V], from the first copy to the last product.
template <class Config>
struct AttentionForwardSmem {
  using Element = typename Config::Element;
  static constexpr int kQ = tile_bytes<Element, Config::kTileM, Config::kWidth>();
  static constexpr int kK = tile_bytes<Element, Config::kTileN, Config::kWidth>();
  static constexpr int kV = tile_bytes<Element, Config::kTileN, Config::kValueWidth>();
  static constexpr int kBytes = kQ + Config::kStages * (kK + kV);
};

template <class Config>
struct AttentionForwardShape {
  static constexpr int kWarps = Config::kThreads / 32;
  static constexpr int kRowBlocks = Config::kTileM / (16 * kWarps);  // of 16 rows, per warp
  static constexpr int kKeyTiles = Config::kTileN / 8;
  static constexpr int kOutTiles = Config::kValueWidth / 8;
  static constexpr int kSteps = Config::kWidth / 16;
  static constexpr int kPlanes = Operand<typename Config::Element>::kPlanes;
  // The query stays in registers where it fits beside the sums, and beside what a softcap takes.
  static constexpr bool kWideO = kRowBlocks * kOutTiles * 4 > 96;
  static constexpr bool kKeepQ =
      kRowBlocks * kSteps * 4 * kPlanes <= (Config::kSoftcap ? 24 : 32) && !kWideO;
  // A panel or half of one at a time where the query is not kept: unrolled further, the compiler
  // reads so far ahead that it spills. Found by trial.
  static constexpr bool kHalfPanel = Config::kWidth % 64 != 0;
  static constexpr bool kRoom =
      (Config::kPacked || Config::kLocal) && kSteps > 4 && !kHalfPanel && !kWideO;
  static constexpr bool kAll = kKeepQ || (kHalfPanel && kRowBlocks == 1 && !kWideO);
  static constexpr int kUnroll = kPlanes > 1 ? 1 : kAll ? kSteps : kRoom ? 4 : 2;
  static constexpr int kOutStep = kPlanes > 1 ? 4 : 2;
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
  const QueryTile& tile;
  const unsigned q_tile, k_tile, v_tile;
  const KeyRows<Config> rows_of_keys;

  __device__ __forceinline__ AttentionForward(const AttentionForwardParams& params,
                                              const QueryTile& at, unsigned shared)
      : p(params),
        tile(at),
        q_tile(shared),
        k_tile(shared + Smem::kQ),
        v_tile(shared + Smem::kQ + Config::kStages * Smem::kK),
        rows_of_keys(params, at) {}

  static __device__ __forceinline__ int stage(int cursor) {
    return Config::kStages == 1 ? 0 : cursor % 2;
  }
  __device__ __forceinline__ void copy_q() const {
    const Element* q =
        static_cast<const Element*>(p.q) +
        sequence_offset<Config>(tile, p.q_batch_stride, p.q_token_stride, tile.start_q);
    const long long rows = static_cast<long long>(tile.rows) * (Config::kPackGqa ? tile.group : 1);
    copy_tile<Config::kTileM, Config::kWidth, Config::kThreads, kAlignmentOf<Config, Element>>(
        q_tile, q, saturate(rows - tile.first), p.head_dim,
        [&](int r) { return query_offset<Config>(tile, r, p.q_token_stride, p.q_head_stride); });
  }
  __device__ __forceinline__ void copy_k(const Visits<Config>& visits, int cursor) const {
    rows_of_keys.copy_k(k_tile + stage(cursor) * Smem::kK, visits.key(warp_uniform(cursor)),
                        tile.keys, p.head_dim);
  }
  __device__ __forceinline__ void copy_v(const Visits<Config>& visits, int cursor) const {
    rows_of_keys.copy_v(v_tile + stage(cursor) * Smem::kV, visits.key(warp_uniform(cursor)),
                        tile.keys, p.value_dim);
  }

  template <class Fragments, class Scores>
  __device__ __forceinline__ void multiply_keys(int cursor, const Fragments& q_kept,
                                                Scores& s) const;
  template <class P, class O>
  __device__ __forceinline__ void multiply_values(int cursor, const P& p_words,
                                                  RunningSoftmax<kRowBlocks>& softmax, O& o) const;
  template <AttentionMask kMask, class Fragments, class O>
  __device__ __forceinline__ void step(const Visits<Config>& visits, int cursor,
                                       const Fragments& q_kept, const ScoreUnits<Config>& units,
                                       const WarpRows<Config>& rows,
                                       RunningSoftmax<kRowBlocks>& softmax, O& o) const;
  template <class Fragments>
  __device__ __forceinline__ void keep_q(Fragments& q) const;
  __device__ __forceinline__ void run() const;
};

// s += q k^T
template <class Config>
template <class Fragments, class Scores>
__device__ __forceinline__ void AttentionForward<Config>::multiply_keys(int cursor,
                                                                        const Fragments& q_kept,
                                                                        Scores& s) const {
  const int thread = thread_index(), lane = thread % 32, warp = thread / 32;
  const auto q_reader = read_rows_first<Config::kTileM, Config::kWidth>(q_tile, lane);
  const auto k_reader = read_columns_first<kTileN, Config::kWidth>(
      k_tile + stage(warp_uniform(cursor)) * Smem::kK, lane);
#pragma unroll Shape::kUnroll
  for (int d = 0; d < Shape::kSteps; ++d) {
    Fragment<Element> q[kRowBlocks];
#pragma unroll
    for (int b = 0; b < kRowBlocks; ++b) {
      if constexpr (Shape::kKeepQ) {
        q[b] = q_kept[b][d];
      } else {
        load_fragment(q[b], q_reader, warp * kRowBlocks + b, d);
      }
    }
#pragma unroll
    for (int n = 0; n < Shape::kKeyTiles; n += 2) {
      Fragment<Element> keys;
      load_fragment(keys, k_reader, n / 2, d);
#pragma unroll
      for (int b = 0; b < kRowBlocks; ++b) multiply_add_pair(s[b][n], s[b][n + 1], q[b], keys);
    }
  }
}

// o += P v, and of float32 l += P
template <class Config>
template <class P, class O>
__device__ __forceinline__ void AttentionForward<Config>::multiply_values(
    int cursor, const P& p_words, RunningSoftmax<kRowBlocks>& softmax, O& o) const {
  const auto v_reader = read_rows_first<kTileN, Config::kValueWidth>(
      v_tile + stage(warp_uniform(cursor)) * Smem::kV, thread_index() % 32);
#pragma unroll
  for (int j = 0; j < Shape::kKeyTiles / 2; ++j) {
    Fragment<Element> w[kRowBlocks];
#pragma unroll
    for (int b = 0; b < kRowBlocks; ++b) {
      w[b] = p_words[b].operand(j);
      if constexpr (kSumsInProduct<Element>) add_row_sums(softmax.sum[b], w[b]);
    }
#pragma unroll
    for (int n = 0; n < Shape::kOutTiles; n += Shape::kOutStep) {
      if (Shape::kPlanes > 1 && n * 8 >= p.value_dim) break;
#pragma unroll
      for (int i = n; i < n + Shape::kOutStep; i += 2) {
        Fragment<Element> values;
        load_fragment_transposed(values, v_reader, j, i / 2);
#pragma unroll
        for (int b = 0; b < kRowBlocks; ++b) multiply_add_pair(o[b][i], o[b][i + 1], w[b], values);
      }
    }
  }
}

// One key block. With two stages, K of the next block is on its way during all of this one, and V
// from the middle on; with one, each is refilled while the other is in use.
template <class Config>
template <AttentionMask kMask, class Fragments, class O>
__device__ __forceinline__ void AttentionForward<Config>::step(const Visits<Config>& visits,
                                                               int cursor, const Fragments& q_kept,
                                                               const ScoreUnits<Config>& units,
                                                               const WarpRows<Config>& rows,
                                                               RunningSoftmax<kRowBlocks>& softmax,
                                                               O& o) const {
  constexpr int kPending = Config::kStages - 1;
  const bool more = warp_uniform(cursor) > visits.begin;

  copy_async_wait<kPending>();
  __syncthreads();  // K is there for all; all have left the stage that is refilled next
  if constexpr (Config::kStages == 1) {
    copy_v(visits, cursor);
  } else if (more) {
    copy_k(visits, cursor - 1);
  }
  copy_async_commit();

  float s[kRowBlocks][Shape::kKeyTiles][4] = {};
  multiply_keys(cursor, q_kept, s);
  modify_scores<Config, kMask>(s, units, rows, tile, visits.window, visits.key(cursor));
  Accumulated<Element, Shape::kKeyTiles> p_words[kRowBlocks];
  constexpr bool kGuard = kMask != AttentionMask::none || HasScoreMod<Config>::kValue;
  softmax_step<kGuard>(s, units.t, softmax, o, p_words);

  copy_async_wait<kPending>();
  __syncthreads();  // V is there for all; all have left K, and with two stages V of the last block
  if (more) {
    if constexpr (Config::kStages == 1) {
      copy_k(visits, cursor - 1);
    } else {
      copy_v(visits, cursor - 1);
    }
  }
  copy_async_commit();

  multiply_values(cursor, p_words, softmax, o);
}

template <class Config>
template <class Fragments>
__device__ __forceinline__ void AttentionForward<Config>::keep_q(Fragments& q) const {
  const int thread = thread_index(), lane = thread % 32, warp = thread / 32;
  copy_async_wait<Config::kStages>();
  __syncthreads();  // Q is there for all
  const auto reader = read_rows_first<Config::kTileM, Config::kWidth>(q_tile, lane);
#pragma unroll
  for (int b = 0; b < kRowBlocks; ++b) {
#pragma unroll
    for (int d = 0; d < Shape::kSteps; ++d)
      load_fragment(q[b][d], reader, warp * kRowBlocks + b, d);
  }
}

template <class Config>
__device__ __forceinline__ void AttentionForward<Config>::run() const {
  const WarpRows<Config> rows(tile);
  const ScoreUnits<Config> units(p, tile, rows);
  const Visits<Config> visits(p, tile);
  float o[kRowBlocks][Shape::kOutTiles][4] = {};
  RunningSoftmax<kRowBlocks> softmax;
  start_empty(softmax);
  if (visits.begin < visits.end) {
    int cursor = visits.end - 1;
    copy_q();
    if constexpr (Shape::kKeepQ) copy_async_commit();
    copy_k(visits, cursor);
    copy_async_commit();
    if constexpr (Config::kStages == 2) {
      copy_v(visits, cursor);
      copy_async_commit();
    }
    Fragment<Element> q[kRowBlocks][Shape::kKeepQ ? Shape::kSteps : 1];
    if constexpr (Shape::kKeepQ) keep_q(q);
    if constexpr (Config::kListed) {
#pragma unroll 1
      for (; cursor >= visits.begin; --cursor) {
        if (visits.masked(cursor)) {
          step<AttentionMask::both>(visits, cursor, q, units, rows, softmax, o);
        } else {
          step<AttentionMask::none>(visits, cursor, q, units, rows, softmax, o);
        }
      }
    } else {
#pragma unroll 1
      for (; cursor >= visits.right; --cursor) {
        step<AttentionMask::both>(visits, cursor, q, units, rows, softmax, o);
      }
#pragma unroll 1
      for (; cursor >= visits.left; --cursor) {
        step<AttentionMask::none>(visits, cursor, q, units, rows, softmax, o);
      }
      if constexpr (Config::kLocal) {
#pragma unroll 1
        for (; cursor >= visits.begin; --cursor) {
          step<AttentionMask::left>(visits, cursor, q, units, rows, softmax, o);
        }
      }
    }
  }
  store_results<Config>(p, tile, units.t, softmax, o);
}

template <class Config>
__device__ void attention_forward(const AttentionForwardParams& p) {
  extern __shared__ __align__(1024) float4 shared[];
  const QueryTile tile = query_tile<Config>(p);
  // Capacity, not length, made the grid: most tiles of a short sequence have nothing to write.
  const int group = Config::kPackGqa ? tile.group : 1;
  if (tile.first / group >= tile.written) return;
  AttentionForward<Config>(p, tile, shared_address(shared)).run();
}

}  // namespace lathe
