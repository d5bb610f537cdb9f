// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// attention_backward: gradients of softmax(scores) V, the scores computed once more.
//
//   p[i, j]  = exp(x[i, j] - lse[i])                 x as in attention_forward, 0 where not kept
//   dp[i, j] = dout[i] . v[j]
//   ds[i, j] = p (dp - error[i])                     error = sum dout out - dlse; times d softcap
//   dv[j] = sum_i p dout[i],  dk[j] = softmax_scale sum_i ds q[i],  dq[i] = sum_j ds k[j]
//
// A block owns kTileN keys, whose dk and dv stay in registers, and walks the blocks of kTileM
// queries that see them, of every query head that reads the keys; its parts of dq are added to an
// accumulator in memory. After Dao et al., FlashAttention-2, with the scores transposed: a warp
// owns 16 keys (or a multiple), so that p and ds are operand A of dv and dk as they stand. Two
// warps that share keys (kWidthWarps) have half the columns of dk and dv each, compute half the
// queries' scores and exchange p and ds through shared memory; ds of all keys goes there for dq.
#pragma once
#include "attention/column_share.cuh"
#include "attention/gradient_sums.cuh"
#include "attention/score_gradients.cuh"
#include "attention/tile.cuh"
#include "common/shared_memory.cuh"
#include "common/varlen.cuh"
#include "params/attention_backward.h"

namespace lathe {

// [K][V][kStages tiles of Q][dO][ds transposed][p transposed, if exchanged][lse2][error]
template <class Config>
struct AttentionBackwardSmem {
  static constexpr int kK = 2 * Config::kTileN * Config::kWidth;
  static constexpr int kV = 2 * Config::kTileN * Config::kValueWidth;
  static constexpr int kQ = 2 * Config::kTileM * Config::kWidth;
  static constexpr int kDout = 2 * Config::kTileM * Config::kValueWidth;
  static constexpr int kScores = 2 * Config::kTileM * Config::kTileN;
  static constexpr int kRow = 4 * Config::kTileM;
  static constexpr int kVAt = kK, kQAt = kVAt + kV, kDoutAt = kQAt + Config::kStages * kQ;
  static constexpr int kDsAt = kDoutAt + kDout, kPAt = kDsAt + kScores;
  static constexpr int kRowsAt = kDsAt + Config::kWidthWarps * kScores;
  static constexpr int kBytes = kRowsAt + 2 * kRow;
};

template <class Config>
struct AttentionBackwardShape {
  static constexpr int kWarps = Config::kThreads / 32;
  static constexpr int kWidthWarps = Config::kWidthWarps, kKeyWarps = kWarps / kWidthWarps;
  static constexpr bool kSplit = kWidthWarps > 1;
  static constexpr int kRowBlocks = Config::kTileN / (16 * kKeyWarps);  // of 16 keys, per warp
  static constexpr int kQueries = Config::kTileM / kWidthWarps;         // of a warp's scores
  static constexpr int kScoreTiles = kQueries / 8;
  using KeyShare = ColumnShare<Config::kWidth, kWidthWarps>;  // of dk
  using ValueShare = ColumnShare<Config::kValueWidth, kWidthWarps>;
  static_assert(kKeyWarps >= 1 && Config::kTileN == 16 * kKeyWarps * kRowBlocks, "16 keys a warp");
  static_assert(kQueries % 16 == 0 && Config::kThreads >= 2 * Config::kTileM, "whole blocks");
  static_assert(Config::kStages == 1 || Config::kStages == 2, "one stage of queries or two");

  // The warps of dq = ds k: rows by columns, as square as may be, for fewest loads per product.
  __host__ __device__ static constexpr int row_blocks(int ways) {
    return Config::kTileM / 16 * ways / kWarps;
  }
  __host__ __device__ static constexpr bool possible(int ways) {
    return kWarps % ways == 0 && row_blocks(ways) * kWarps == Config::kTileM / 16 * ways &&
           row_blocks(ways) > 0 && (ways < 4 || Config::kWidth % 64 == 0);
  }
  __host__ __device__ static constexpr int loads(int ways) {
    return possible(ways) ? row_blocks(ways) + Config::kWidth / 16 / ways : 1 << 20;
  }
  static constexpr int kDqWays = loads(1) < loads(2) && loads(1) < loads(4) ? 1
                                 : loads(2) < loads(4)                      ? 2
                                                                            : 4;
  static_assert(possible(kDqWays), "the warps do not divide the tile of dq");
  static constexpr int kDqRowBlocks = row_blocks(kDqWays);
  using DqShare = ColumnShare<Config::kWidth, kDqWays>;
};

// The keys that a block owns, and where their sequence lies.
struct KeyTile {
  int sequence, kv_head;
  int first_head, heads;  // query heads: those of the key head, or one
  int start_q, start_k;   // of a packed sequence, otherwise 0
  int rows, keys;         // of the sequence
  int written;            // keys of dk and dv to write: padding behind the last sequence
};

template <class Config>
__device__ __forceinline__ KeyTile key_tile(const AttentionBackwardParams& p, unsigned place) {
  KeyTile tile;
  const int group = p.heads / p.kv_heads, heads = Config::kHeadsApart ? p.heads : p.kv_heads;
  const int head = static_cast<int>(place % heads);
  tile.sequence = static_cast<int>(place / heads);
  tile.kv_head = Config::kHeadsApart ? head / group : head;
  tile.first_head = Config::kHeadsApart ? head : head * group;
  tile.heads = Config::kHeadsApart ? 1 : group;
  tile.start_q = tile.start_k = 0;
  tile.rows = p.seq_q, tile.keys = tile.written = p.seq_k;
  if constexpr (Config::kPacked) {
    using Offset = typename Config::CuSeqlens;
    const int b = tile.sequence;
    const bool any = b < p.sequences;  // without sequences every key is padding
    tile.start_q = any ? offset_at<Offset>(p.cu_seqlens_q, b, p.seq_q) : 0;
    tile.start_k = any ? offset_at<Offset>(p.cu_seqlens_k, b, p.seq_k) : 0;
    const int end_q = any ? offset_at<Offset>(p.cu_seqlens_q, b + 1, p.seq_q) : 0;
    const int end_k = any ? offset_at<Offset>(p.cu_seqlens_k, b + 1, p.seq_k) : 0;
    tile.rows = maximum(end_q - tile.start_q, 0);
    tile.keys = maximum(end_k - tile.start_k, 0);
    tile.written = b + 1 >= p.sequences ? p.seq_k - tile.start_k : tile.keys;
  }
  return tile;
}

// A block of queries of one head.
struct QueryPlace {
  int head, block;
};

template <class Config>
struct AttentionBackward {
  using Element = typename Config::Element;
  using Shape = AttentionBackwardShape<Config>;
  using Smem = AttentionBackwardSmem<Config>;
  using KeyShare = typename Shape::KeyShare;
  using ValueShare = typename Shape::ValueShare;
  using DqShare = typename Shape::DqShare;
  static constexpr int kRowBlocks = Shape::kRowBlocks, kTileM = Config::kTileM,
                       kTileN = Config::kTileN, kSteps = Shape::kQueries * Shape::kWidthWarps / 16;
  using Scores = float[kRowBlocks][Shape::kScoreTiles][4];
  using Operands = unsigned[kRowBlocks][Shape::kScoreTiles / 2][4];
  using KeySums = float[kRowBlocks][2 * KeyShare::kBlocks][4];
  using ValueSums = float[kRowBlocks][2 * ValueShare::kBlocks][4];

  const AttentionBackwardParams& p;
  const KeyTile& tile;
  const unsigned shared;
  const KeyWindow window;
  const GradientUnits<Config> units;

  __device__ __forceinline__ AttentionBackward(const AttentionBackwardParams& params,
                                               const KeyTile& place, unsigned memory)
      : p(params),
        tile(place),
        shared(memory),
        window(key_window(place.rows, place.keys, Config::kLocal ? params.window_left : -1,
                          Config::kLocal ? params.window_right : -1)),
        units(params) {}

  static __device__ __forceinline__ int lane() { return thread_index() % 32; }
  static __device__ __forceinline__ int key_warp() {
    return thread_index() / 32 % Shape::kKeyWarps;
  }
  static __device__ __forceinline__ int width_warp() {
    return thread_index() / 32 / Shape::kKeyWarps;
  }

  __device__ __forceinline__ long long query_offset(long long batch_stride,
                                                    long long token_stride) const {
    return Config::kPacked ? tile.start_q * token_stride : tile.sequence * batch_stride;
  }
  __device__ __forceinline__ long long key_offset(long long batch_stride,
                                                  long long token_stride) const {
    return Config::kPacked ? tile.start_k * token_stride : tile.sequence * batch_stride;
  }
  __device__ __forceinline__ unsigned q_tile(int block) const {
    return shared + Smem::kQAt + (Config::kStages == 1 ? 0 : block % 2 * Smem::kQ);
  }

  __device__ __forceinline__ void copy_keys(int first) const {
    const Element* k = static_cast<const Element*>(p.k) +
                       key_offset(p.k_batch_stride, p.k_token_stride) +
                       tile.kv_head * p.k_head_stride;
    const Element* v = static_cast<const Element*>(p.v) +
                       key_offset(p.v_batch_stride, p.v_token_stride) +
                       tile.kv_head * p.v_head_stride;
    copy_tile<kTileN, Config::kWidth, Config::kThreads>(
        shared, k, tile.keys - first, p.head_dim,
        [&](int r) { return (first + r) * p.k_token_stride; });
    copy_tile<kTileN, Config::kValueWidth, Config::kThreads>(
        shared + Smem::kVAt, v, tile.keys - first, p.value_dim,
        [&](int r) { return (first + r) * p.v_token_stride; });
  }
  // `turn` counts the steps of the key tile: where the queries go with two stages.
  __device__ __forceinline__ void copy_q(const QueryPlace& at, int turn) const {
    const Element* q = static_cast<const Element*>(p.q) +
                       query_offset(p.q_batch_stride, p.q_token_stride) + at.head * p.q_head_stride;
    const int row = in_place(at.block) * kTileM;
    copy_tile<kTileM, Config::kWidth, Config::kThreads>(
        q_tile(turn), q, tile.rows - row, p.head_dim,
        [&](int r) { return (row + r) * p.q_token_stride; });
  }
  // dout and what belongs to its rows. Rows past the last have 0 for both, which nothing uses.
  __device__ __forceinline__ void copy_dout(const QueryPlace& at) const {
    const Element* dout = static_cast<const Element*>(p.dout) +
                          query_offset(p.dout_batch_stride, p.dout_token_stride) +
                          at.head * p.dout_head_stride;
    const int row = in_place(at.block) * kTileM;
    copy_tile<kTileM, Config::kValueWidth, Config::kThreads>(
        shared + Smem::kDoutAt, dout, tile.rows - row, p.value_dim,
        [&](int r) { return (row + r) * p.dout_token_stride; });
    const int thread = thread_index();
    if (thread < 2 * kTileM) {
      const float* from = static_cast<const float*>(thread < kTileM ? p.lse2 : p.error);
      const int own = row + thread % kTileM;
      const long long first =
          Config::kPacked ? tile.start_q : static_cast<long long>(tile.sequence) * p.seq_q;
      copy_async_word(shared + Smem::kRowsAt + 4 * thread,
                      from + static_cast<long long>(at.head) * p.rows + first + own,
                      own < tile.rows);
    }
  }

  template <int kColumns, class Rows>
  __device__ __forceinline__ void transposed_scores(unsigned keys, const Rows& queries,
                                                    Scores& s) const;
  template <class Share, int kColumns, class Sums>
  __device__ __forceinline__ void add_products(const Operands& kept, unsigned exchanged,
                                               unsigned queries, Sums& sums) const;
  __device__ __forceinline__ void exchange(const Operands& words, unsigned to) const;
  __device__ __forceinline__ void add_dq(const QueryPlace& at, int slice) const;
  __device__ __forceinline__ void step(const QueryPlace& at, const QueryPlace& next, bool more,
                                       int turn, int first, int slice, bool full, KeySums& dk,
                                       ValueSums& dv) const;
  __device__ __forceinline__ void store(int first, const KeySums& dk, const ValueSums& dv) const;
  __device__ __forceinline__ void run(int first, int slice) const;
};

// s += keys queries^T, of the warp's own keys and queries; both are row by row.
template <class Config>
template <int kColumns, class Rows>
__device__ __forceinline__ void AttentionBackward<Config>::transposed_scores(unsigned keys,
                                                                             const Rows& queries,
                                                                             Scores& s) const {
  const auto key_reader = read_rows_first<kTileN, kColumns>(keys, lane());
  const int own = key_warp() * kRowBlocks;
  // A panel at a time: unrolled further, the compiler reads so far ahead that it spills.
#pragma unroll(kColumns % 64 == 0 ? 4 : kColumns / 16)
  for (int d = 0; d < kColumns / 16; ++d) {
    unsigned a[kRowBlocks][4];
#pragma unroll
    for (int b = 0; b < kRowBlocks; ++b) load_matrix(a[b], key_reader.at(own + b, d));
#pragma unroll
    for (int n = 0; n < Shape::kScoreTiles; n += 2) {
      unsigned q[4];
      load_matrix(q, queries.at(n / 2, d));
#pragma unroll
      for (int b = 0; b < kRowBlocks; ++b) {
        multiply_add(s[b][n], a[b], q[0], q[1], Element{});
        multiply_add(s[b][n + 1], a[b], q[2], q[3], Element{});
      }
    }
  }
}

// sums += words queries: of all queries of the block and the warp's columns. The words are the
// warp's own, or those that it and its neighbours have exchanged.
template <class Config>
template <class Share, int kColumns, class Sums>
__device__ __forceinline__ void AttentionBackward<Config>::add_products(const Operands& kept,
                                                                        unsigned exchanged,
                                                                        unsigned queries,
                                                                        Sums& sums) const {
  const auto reader = Share::shared_out(read_rows_first<kTileM, kColumns>(queries, lane()),
                                        Shape::kSplit ? width_warp() : 0);
  const auto word_reader = read_rows_first<kTileN, kTileM>(exchanged, lane());
  const int own = key_warp() * kRowBlocks;
#pragma unroll
  for (int j = 0; j < kSteps; ++j) {
    unsigned a[kRowBlocks][4];
#pragma unroll
    for (int b = 0; b < kRowBlocks; ++b) {
      if constexpr (Shape::kSplit) {
        load_matrix(a[b], word_reader.at(own + b, j));
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) a[b][i] = kept[b][j][i];
      }
    }
#pragma unroll
    for (int n = 0; n < Share::kBlocks; ++n) {
      unsigned values[4];
      load_matrix_transposed(values, reader.at(j, Share::block(n)));
#pragma unroll
      for (int b = 0; b < kRowBlocks; ++b) {
        multiply_add(sums[b][2 * n], a[b], values[0], values[1], Element{});
        multiply_add(sums[b][2 * n + 1], a[b], values[2], values[3], Element{});
      }
    }
  }
}

// Operands A of the warp's keys into a tile of kTileN keys by kTileM queries.
template <class Config>
__device__ __forceinline__ void AttentionBackward<Config>::exchange(const Operands& words,
                                                                    unsigned to) const {
  using Shaped = Tile<kTileN, kTileM>;
  const int first = (Shape::kSplit ? width_warp() : 0) * Shape::kQueries / 8;
#pragma unroll
  for (int b = 0; b < kRowBlocks; ++b) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = (key_warp() * kRowBlocks + b) * 16 + 8 * half + lane() / 4;
#pragma unroll
      for (int n = 0; n < Shape::kScoreTiles; ++n) {
        const int chunk = first + n;
        const int at = Shaped::kPanels > 0 ? chunk / 8 * kTileN * 128 + panel_offset(row, chunk % 8)
                                           : half_panel_offset(row, chunk);
        store_shared(to + at + lane() % 4 * 4, words[b][n / 2][n % 2 * 2 + half]);
      }
    }
  }
}

// dq += ds k of one block of queries, over all keys of the tile.
template <class Config>
__device__ __forceinline__ void AttentionBackward<Config>::add_dq(const QueryPlace& at,
                                                                  int slice) const {
  constexpr int kBlocks = Shape::kDqRowBlocks;
  const int warp = thread_index() / 32, way = warp % Shape::kDqWays,
            first = warp / Shape::kDqWays * kBlocks;
  const auto place = [&](int b) {
    float* to = static_cast<float*>(p.dq) + query_offset(p.dq_batch_stride, p.dq_token_stride) +
                at.head * p.dq_head_stride;
    if constexpr (Config::kDeterministic) to += slice * p.dq_slice_stride;
    const int row = in_place(at.block) * kTileM + 16 * (first + b);
    return SumPlace<DqShare>{to, p.dq_token_stride, row, tile.rows, p.head_dim, way};
  };
  float dq[kBlocks][2 * DqShare::kBlocks][4] = {};
  if constexpr (Config::kDeterministic) {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) place(b).load(dq[b]);
  }
  const auto keys =
      DqShare::shared_out(read_rows_first<kTileN, Config::kWidth>(shared, lane()), way);
  auto ds = read_columns_first<kTileN, kTileM>(shared + Smem::kDsAt, lane());
  // The blocks of a warp lie in one panel: 2^n of them, at a multiple of as many.
  ds.panel = (ds.panel + first / 4 * kTileN * 128) ^ (first % 4 * 32);
  ds.half ^= first % 4 * 32;
#pragma unroll
  for (int j = 0; j < kTileN / 16; ++j) {
    unsigned a[kBlocks][4];
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) load_matrix_transposed(a[b], ds.at(j, b));
#pragma unroll
    for (int n = 0; n < DqShare::kBlocks; ++n) {
      unsigned values[4];
      load_matrix_transposed(values, keys.at(j, DqShare::block(n)));
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        multiply_add(dq[b][2 * n], a[b], values[0], values[1], Element{});
        multiply_add(dq[b][2 * n + 1], a[b], values[2], values[3], Element{});
      }
    }
  }
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    if constexpr (Config::kDeterministic) {
      place(b).store(dq[b]);
    } else {
      place(b).add(dq[b]);
    }
  }
}

// One block of queries. Its copies are complete at the first barrier; those of the next one start
// where the last reader of their place has been left behind.
template <class Config>
__device__ __forceinline__ void AttentionBackward<Config>::step(const QueryPlace& at,
                                                                const QueryPlace& next, bool more,
                                                                int turn, int first, int slice,
                                                                bool full, KeySums& dk,
                                                                ValueSums& dv) const {
  const unsigned q = q_tile(turn), dout = shared + Smem::kDoutAt, ds_tile = shared + Smem::kDsAt,
                 p_tile = shared + Smem::kPAt;
  const int column = Shape::kSplit ? width_warp() * Shape::kQueries : 0;
  ScorePlace place;
  place.key = first + key_warp() * kRowBlocks * 16 + lane() / 4;
  place.query = at.block * kTileM;
  place.lane_query = column + lane() % 4 * 2;
  place.offset = tile.keys - tile.rows;
  if constexpr (Config::kAlibi) {
    place.slope = load_element(static_cast<const float*>(p.alibi_slopes) +
                               tile.sequence * p.alibi_batch_stride + at.head);
  }

  copy_async_wait<0>();
  __syncthreads();  // all is there for all; all have left ds, and with two stages the other Q
  if constexpr (Config::kStages == 2) {
    if (more) copy_q(next, turn + 1);
    copy_async_commit();
  }
  Operands p_words, ds_words;
  {
    const int l = lane(), row = column + (l & 7) + (l >> 4) * 8, chunk = (l >> 3) & 1;
    const unsigned rows = shared + Smem::kRowsAt + 4 * place.lane_query;
    Scores s = {};
    transposed_scores<Config::kWidth>(shared, TileReader<kTileM, Config::kWidth>(q, row, chunk), s);
    if (full) {
      score_weights<Config, false>(s, p_words, units, place, window, tile.rows, rows);
    } else {
      score_weights<Config, true>(s, p_words, units, place, window, tile.rows, rows);
    }
    if constexpr (Shape::kSplit) {
      exchange(p_words, p_tile);
    } else {
      add_products<ValueShare, Config::kValueWidth>(p_words, 0, dout, dv);
    }
    Scores dp = {};
    transposed_scores<Config::kValueWidth>(
        shared + Smem::kVAt, TileReader<kTileM, Config::kValueWidth>(dout, row, chunk), dp);
    if (full) {
      score_gradients<Config, false>(s, dp, ds_words, rows + Smem::kRow);
    } else {
      score_gradients<Config, true>(s, dp, ds_words, rows + Smem::kRow);
    }
    exchange(ds_words, ds_tile);
  }
  __syncthreads();  // p and ds are there for all; without exchange, all have left dout
  if constexpr (Shape::kSplit) {
    add_products<ValueShare, Config::kValueWidth>(p_words, p_tile, dout, dv);
  } else {
    if (more) copy_dout(next);
    copy_async_commit();
  }
  add_products<KeyShare, Config::kWidth>(ds_words, ds_tile, q, dk);
  if constexpr (Shape::kSplit || Config::kStages == 1) {
    __syncthreads();  // all have left Q, and with an exchange dout
    if (more) {
      if constexpr (Shape::kSplit) copy_dout(next);
      if constexpr (Config::kStages == 1) copy_q(next, turn + 1);
    }
    copy_async_commit();
  }
  add_dq(at, slice);
}

template <class Config>
__device__ __forceinline__ void AttentionBackward<Config>::store(int first, const KeySums& dk,
                                                                 const ValueSums& dv) const {
  using Stored = typename Choose<Config::kHeadsApart, float, Element>::Type;
  const int way = Shape::kSplit ? width_warp() : 0;
  const int head = Config::kHeadsApart ? tile.first_head : tile.kv_head;
  Stored* to_k = static_cast<Stored*>(p.dk) + key_offset(p.dk_batch_stride, p.dk_token_stride) +
                 head * p.dk_head_stride;
  Stored* to_v = static_cast<Stored*>(p.dv) + key_offset(p.dv_batch_stride, p.dv_token_stride) +
                 head * p.dv_head_stride;
#pragma unroll
  for (int b = 0; b < kRowBlocks; ++b) {
    const int row = first + (key_warp() * kRowBlocks + b) * 16;
    store_rows<KeyShare>(dk[b], way, p.softmax_scale, to_k, p.dk_token_stride, row, tile.keys,
                         tile.written, p.head_dim);
    store_rows<ValueShare>(dv[b], way, 1.0f, to_v, p.dv_token_stride, row, tile.keys, tile.written,
                           p.value_dim);
  }
}

// The tile of keys that begins at `first`.
template <class Config>
__device__ __forceinline__ void AttentionBackward<Config>::run(int first, int slice) const {
  const QueryBlocks blocks = query_blocks<kTileM, kTileN>(window, tile.rows, first);
  KeySums dk = {};
  ValueSums dv = {};
  int left = (blocks.end - blocks.begin) * tile.heads;
  if (left > 0) {
    QueryPlace at = {tile.first_head, blocks.begin};
    copy_keys(first);
    copy_q(at, 0);
    copy_dout(at);
    copy_async_commit();
#pragma unroll 1
    for (int turn = 0; left > 0; ++turn, --left) {
      QueryPlace next = {at.head, at.block + 1};
      if (next.block == blocks.end) next = {at.head + 1, blocks.begin};
      step(at, next, left > 1, turn, first, slice, blocks.full(at.block), dk, dv);
      at = next;
    }
  }
  store(first, dk, dv);
}

template <class Config>
__device__ void attention_backward(const AttentionBackwardParams& p) {
  extern __shared__ __align__(1024) float4 shared[];
  const int slice = static_cast<int>(blockIdx.x % p.slices);
  const KeyTile tile = key_tile<Config>(p, blockIdx.x / p.slices);
  const AttentionBackward<Config> work(p, tile, shared_address(shared));
  if constexpr (Config::kDeterministic) {
#pragma unroll 1
    for (int n = slice; n < ceil_div(tile.written, Config::kTileN); n += p.slices) {
      work.run(n * Config::kTileN, slice);
      __syncthreads();  // all have left the keys before others take their place
    }
  } else {
    if (slice * Config::kTileN < tile.written) work.run(slice * Config::kTileN, slice);
  }
}

}  // namespace lathe
