// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// attention_backward: gradients of softmax(scores) V, the scores computed once more.
//
//   p[i, j]  = exp(x[i, j] - lse[i])                 x as in attention_forward, 0 where not kept
//   dp[i, j] = dout[i] . v[j]
//   ds[i, j] = p (dp - delta[i])                     delta = sum dout out - dlse; times d softcap
//   dv[j] = sum_i p dout[i],  dk[j] = softmax_scale sum_i ds q[i],  dq[i] = sum_j ds k[j]
//
// A block owns kTileN keys, whose dk and dv stay in registers, and walks the blocks of kTileM
// queries that see them, of every query head that reads the keys; its parts of dq are added to an
// accumulator in memory. After Dao et al., FlashAttention-2, with the scores transposed.
#pragma once
#include "attention/backward/gradient_products.cuh"
#include "attention/backward/gradient_sums.cuh"
#include "attention/backward/row_values.cuh"
#include "attention/backward/score_gradients.cuh"
#include "attention/query_visits.cuh"
#include "attention/split_copy.cuh"
#include "params/attention_backward.h"

namespace lathe {

// [K][V][kStages tiles of Q][dO][ds transposed][p transposed, if exchanged][lse2][delta][key tile]
template <class Config>
struct AttentionBackwardSmem {
  using Element = typename Config::Element;
  static constexpr int kK = tile_bytes<Element, Config::kTileN, Config::kWidth>();
  static constexpr int kV = tile_bytes<Element, Config::kTileN, Config::kValueWidth>();
  static constexpr int kQ = tile_bytes<Element, Config::kTileM, Config::kWidth>();
  static constexpr int kDout = tile_bytes<Element, Config::kTileM, Config::kValueWidth>();
  static constexpr int kScores = tile_bytes<Element, Config::kTileN, Config::kTileM>();
  static constexpr int kRow = 4 * Config::kTileM;
  static constexpr int kVAt = kK, kQAt = kVAt + kV, kDoutAt = kQAt + Config::kStages * kQ;
  static constexpr int kDsAt = kDoutAt + kDout, kPAt = kDsAt + kScores;
  static constexpr int kRowsAt = kPAt + (GradientShape<Config>::kExchange ? kScores : 0);
  static constexpr int kTileAt = kRowsAt + 2 * kRow;
  static constexpr int kBytes = kTileAt + KeyTile::kBytes;
};

template <class Config>
struct AttentionBackward {
  using Element = typename Config::Element;
  using Shape = GradientShape<Config>;
  using Smem = AttentionBackwardSmem<Config>;
  static constexpr int kTileM = Config::kTileM, kTileN = Config::kTileN;

  const AttentionBackwardParams& p;
  volatile KeyTile* const tile;
  const QueryVisits<Config> visits;
  const unsigned shared;
  const GradientUnits<Config> units;

  __device__ __forceinline__ AttentionBackward(const AttentionBackwardParams& params, char* memory)
      : p(params),
        tile(reinterpret_cast<volatile KeyTile*>(memory + Smem::kTileAt)),
        visits{params, tile},
        shared(shared_address(memory)),
        units(params) {}

  __device__ __forceinline__ long long query_offset(long long batch_stride,
                                                    long long token_stride) const {
    return Config::kPacked ? tile->start_q * token_stride : tile->sequence * batch_stride;
  }
  __device__ __forceinline__ long long key_offset(long long batch_stride,
                                                  long long token_stride) const {
    return Config::kPacked ? tile->start_k * token_stride : tile->sequence * batch_stride;
  }
  // `turn` counts the blocks of queries of a key tile: with two stages they take turns.
  __device__ __forceinline__ unsigned q_tile(int turn) const {
    return shared + Smem::kQAt + (Config::kStages == 1 ? 0 : turn % 2 * Smem::kQ);
  }

  __device__ __forceinline__ void copy_keys() const {
    const int first = tile->first, rows = tile->keys - first, head = tile->kv_head;
    const Element* k = static_cast<const Element*>(p.k) +
                       key_offset(p.k_batch_stride, p.k_token_stride) + head * p.k_head_stride;
    const Element* v = static_cast<const Element*>(p.v) +
                       key_offset(p.v_batch_stride, p.v_token_stride) + head * p.v_head_stride;
    copy_tile<kTileN, Config::kWidth, Config::kThreads, kAlignmentOf<Config, Element>>(
        shared, k, rows, p.head_dim, [&](int r) { return (first + r) * p.k_token_stride; });
    copy_tile<kTileN, Config::kValueWidth, Config::kThreads, kAlignmentOf<Config, Element>>(
        shared + Smem::kVAt, v, rows, p.value_dim,
        [&](int r) { return (first + r) * p.v_token_stride; });
  }
  __device__ __forceinline__ void copy_q(const QueryCursor& at, int turn) const {
    const Element* q = static_cast<const Element*>(p.q) +
                       query_offset(p.q_batch_stride, p.q_token_stride) + at.head * p.q_head_stride;
    const int row = warp_uniform(visits.block(at)) * kTileM;
    copy_tile<kTileM, Config::kWidth, Config::kThreads, kAlignmentOf<Config, Element>>(
        q_tile(turn), q, tile->rows - row, p.head_dim,
        [&](int r) { return (row + r) * p.q_token_stride; });
  }
  // dout and what belongs to its rows.
  __device__ __forceinline__ void copy_dout(const QueryCursor& at) const {
    const Element* dout = static_cast<const Element*>(p.dout) +
                          query_offset(p.dout_batch_stride, p.dout_token_stride) +
                          at.head * p.dout_head_stride;
    const int row = warp_uniform(visits.block(at)) * kTileM, rows = tile->rows;
    copy_tile<kTileM, Config::kValueWidth, Config::kThreads, kAlignmentOf<Config, Element>>(
        shared + Smem::kDoutAt, dout, rows - row, p.value_dim,
        [&](int r) { return (row + r) * p.dout_token_stride; });
    const long long first =
        static_cast<long long>(at.head) * p.rows + query_offset(p.seq_q, 1) + row;
    copy_row_values<kTileM, Config::kThreads>(shared + Smem::kRowsAt, p.lse2, p.delta, first,
                                              rows - row);
  }

  __device__ __forceinline__ void scores(const QueryCursor& at, unsigned q,
                                         typename Shape::Operands& ds,
                                         typename Shape::DvAccumulators& dv) const;
  __device__ __forceinline__ void dq_step(const QueryCursor& at) const;
  __device__ __forceinline__ void step(const QueryCursor& at, const QueryCursor& next, int turn,
                                       typename Shape::DkAccumulators& dk,
                                       typename Shape::DvAccumulators& dv) const;
  __device__ __forceinline__ void store(const typename Shape::DkAccumulators& dk,
                                        const typename Shape::DvAccumulators& dv) const;
  __device__ __forceinline__ void run() const;
};

// p and ds of the warp's keys and queries: p goes into dv at once or is exchanged, ds is exchanged.
template <class Config>
__device__ __forceinline__ void AttentionBackward<Config>::scores(
    const QueryCursor& at, unsigned q, typename Shape::Operands& ds,
    typename Shape::DvAccumulators& dv) const {
  const unsigned dout = shared + Smem::kDoutAt;
  ScoreTile scores;
  scores.key = tile->first + Shape::key_block() * 16 + Shape::lane() / 4;
  scores.query = visits.block(at) * kTileM;
  scores.lane_query = Shape::first_query() + Shape::lane() % 4 * 2;
  scores.offset = tile->keys - tile->rows;
  if constexpr (Config::kAlibi) {
    scores.slope = load_element(static_cast<const float*>(p.alibi_slopes) +
                                tile->sequence * p.alibi_batch_stride + at.head);
  }
  const unsigned rows = shared + Smem::kRowsAt + 4 * scores.lane_query;
  if constexpr (GradientUnits<Config>::kMods) {
    scores.sequence = tile->sequence, scores.head = at.head;
  }
  const bool full = uniform(visits.full(at));
  typename Shape::Scores s = {}, dp = {};
  typename Shape::Operands p_words;
  add_scores<Config, Config::kWidth>(shared, q, s);
  if (full) {
    score_weights<Config, false>(s, p_words, units, scores, tile->window(), tile->rows, rows);
  } else {
    score_weights<Config, true>(s, p_words, units, scores, tile->window(), tile->rows, rows);
  }
  if constexpr (Shape::kExchange) {
    exchange<Config>(p_words, shared + Smem::kPAt);
  } else {
    add_products<Config, typename Shape::ValueShare, Config::kValueWidth>(p_words, 0, dout,
                                                                          p.value_dim, dv);
  }
  add_scores<Config, Config::kValueWidth>(shared + Smem::kVAt, dout, dp);
  if (full) {
    score_gradients<Config, false>(s, dp, ds, rows + Smem::kRow);
  } else {
    score_gradients<Config, true>(s, dp, ds, rows + Smem::kRow);
  }
  // In float32 each of the warps that share keys has all of ds.
  if (!Shape::kSplit || Shape::kExchange || uniform(Shape::width_warp() == 0)) {
    exchange<Config>(ds, shared + Smem::kDsAt);
  }
}

// In order: the sums begin with what is in memory, which no other thread touches, and replace it.
template <class Config>
__device__ __forceinline__ void AttentionBackward<Config>::dq_step(const QueryCursor& at) const {
  // It is computed anew after the product, which leaves no registers for it.
  const auto dq_tile = [&] {
    float* to = static_cast<float*>(p.dq) + query_offset(p.dq_batch_stride, p.dq_token_stride) +
                at.head * p.dq_head_stride;
    if constexpr (Config::kDeterministic) to += tile->slice * p.dq_slice_stride;
    const int row = warp_uniform(visits.block(at)) * kTileM + 16 * Shape::dq_block();
    return SumTile<typename Shape::DqShare>{to,         p.dq_token_stride, row,
                                            tile->rows, p.head_dim,        Shape::dq_way()};
  };
  typename Shape::DqAccumulators dq = {};
  if constexpr (Config::kDeterministic) dq_tile().load(dq);
  add_dq<Config>(shared + Smem::kDsAt, shared, p.head_dim, dq);
  if constexpr (Config::kDeterministic) {
    dq_tile().store(dq);
  } else {
    dq_tile().add(dq);
  }
}

// One block of queries. Its copies are complete at the first barrier; those of the next one start
// where the last reader of their place has been left behind.
template <class Config>
__device__ __forceinline__ void AttentionBackward<Config>::step(
    const QueryCursor& at, const QueryCursor& next, int turn, typename Shape::DkAccumulators& dk,
    typename Shape::DvAccumulators& dv) const {
  const unsigned q = q_tile(turn);
  const bool more = uniform(visits.there(next));
  typename Shape::Operands ds;
  copy_async_wait<0>();
  __syncthreads();  // all is there for all; all have left ds, and with two stages the other Q
  if constexpr (Config::kStages == 2) {
    if (more) copy_q(next, turn + 1);
    copy_async_commit();
  }
  scores(at, q, ds, dv);
  __syncthreads();  // p and ds are there for all; without exchange, all have left dout
  if constexpr (Shape::kExchange) {
    add_products<Config, typename Shape::ValueShare, Config::kValueWidth>(
        ds, shared + Smem::kPAt, shared + Smem::kDoutAt, p.value_dim, dv);
  } else {
    if (more) copy_dout(next);
    copy_async_commit();
  }
  add_products<Config, typename Shape::KeyShare, Config::kWidth>(ds, shared + Smem::kDsAt, q,
                                                                 p.head_dim, dk);
  if constexpr (Shape::kExchange || Config::kStages == 1) {
    __syncthreads();  // all have left Q, and with an exchange dout
    if (more) {
      if constexpr (Shape::kExchange) copy_dout(next);
      if constexpr (Config::kStages == 1) copy_q(next, turn + 1);
    }
    copy_async_commit();
  }
  if (p.dq) dq_step(at);
}

template <class Config>
__device__ __forceinline__ void AttentionBackward<Config>::store(
    const typename Shape::DkAccumulators& dk, const typename Shape::DvAccumulators& dv) const {
  using Stored = typename Choose<Config::kHeadsApart, float, Element>::Type;
  // Parts of query heads lie in the workspace.
  constexpr int kAlignment = Config::kHeadsApart ? 16 : kAlignmentOf<Config, Element>;
  const int way = Shape::width_warp(), keys = tile->keys, written = tile->written;
  const int head = Config::kHeadsApart ? tile->first_head : tile->kv_head;
  Stored* to_k = static_cast<Stored*>(p.dk) + key_offset(p.dk_batch_stride, p.dk_token_stride) +
                 head * p.dk_head_stride;
  Stored* to_v = static_cast<Stored*>(p.dv) + key_offset(p.dv_batch_stride, p.dv_token_stride) +
                 head * p.dv_head_stride;
#pragma unroll
  for (int b = 0; b < Shape::kRowBlocks; ++b) {
    const int row = tile->first + (Shape::key_block() + b) * 16;
    if (p.dk) {
      store_rows<typename Shape::KeyShare, kAlignment>(
          dk[b], way, p.softmax_scale, to_k, p.dk_token_stride, row, keys, written, p.head_dim);
    }
    if (p.dv) {
      store_rows<typename Shape::ValueShare, kAlignment>(dv[b], way, 1.0f, to_v, p.dv_token_stride,
                                                         row, keys, written, p.value_dim);
    }
  }
}

// One tile of keys.
template <class Config>
__device__ __forceinline__ void AttentionBackward<Config>::run() const {
  typename Shape::DkAccumulators dk = {};
  typename Shape::DvAccumulators dv = {};
  QueryCursor at = visits.begin();
  if (uniform(visits.there(at))) {
    copy_keys();
    copy_q(at, 0);
    copy_dout(at);
    copy_async_commit();
#pragma unroll 1
    for (int turn = 0; uniform(visits.there(at)); ++turn) {
      const QueryCursor next = visits.next(at);
      step(at, next, turn, dk, dv);
      at = next;
    }
  }
  store(dk, dv);
}

template <class Config>
__device__ void attention_backward(const AttentionBackwardParams& p) {
  extern __shared__ __align__(1024) char shared[];
  const AttentionBackward<Config> work(p, shared);
  volatile KeyTile* const tile = work.tile;
  const int slice = static_cast<int>(blockIdx.x % p.slices);
  const bool first = threadIdx.x == 0;
  if (first) key_tile_begin<Config>(p, blockIdx.x / p.slices, slice, tile);
  if (first) key_tile_at<Config>(slice * Config::kTileN, tile);
  __syncthreads();  // the tile is there for all
  if constexpr (Config::kDeterministic) {
#pragma unroll 1
    while (uniform(tile->first < tile->written)) {
      work.run();
      const long long next = tile->first + static_cast<long long>(p.slices) * Config::kTileN;
      __syncthreads();  // all have left the tile and its keys
      if (first) key_tile_at<Config>(saturate(next), tile);
      __syncthreads();  // the next tile is there for all
    }
  } else {
    if (uniform(tile->first < tile->written)) work.run();
  }
}

}  // namespace lathe
