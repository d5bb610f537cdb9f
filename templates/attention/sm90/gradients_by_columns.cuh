// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The products of attention_backward_warpgroups.cuh where heads are so wide that dk and dv of 64
// keys fill a warpgroup's registers: a block has 64 keys, and its two warpgroups share out
//
//   s^T = k q^T,  dp^T = v dout^T                    by queries, 32 each
//   dv += p^T dout,  dk += ds^T q,  dq = ds k        by columns, half of them each
//
// p and ds pass through shared memory, where each warpgroup reads both halves. A step ends with a
// barrier: behind it p and ds of its queries are there, and what they replace was read. Behind dk
// and dv of a block the scores of the next one are asked for, so that q and dout of this one are
// free early, and other products run while the next P is computed.
#pragma once
#include "attention/backward/gradient_sums.cuh"
#include "attention/backward/score_gradients.cuh"
#include "attention/sm90/dq_tiles.cuh"
#include "attention/sm90/gradient_ring.cuh"
#include "common/wgmma.cuh"

namespace lathe {

// Sums of a warpgroup's columns: half of those of 256 in one piece, of those of 192 a panel of 64
// and half of the last panel. An operand that begins in the middle of a panel has to end in it.
template <int kWidth>
struct ColumnHalf {
  static_assert(kWidth == 192 || kWidth == 256, "of other widths no half is made of such pieces");
  static constexpr int kFirst = kWidth == 256 ? 128 : 64, kSecond = kWidth / 2 - kFirst;
  float first[kFirst / 8][4], second[kSecond == 0 ? 1 : kSecond / 8][4];

  static __device__ __forceinline__ int first_column(int group) { return group * kFirst; }
  static __device__ __forceinline__ int second_column(int group) {
    return 2 * kFirst + group * kSecond;
  }
  // A group of products, sums = A B or sums += A B. A is kSteps steps of kStepA bytes, and B the
  // rows of a tile whose panels have kPanelBytes.
  template <class Element, int kSteps, int kStepA, int kPanelBytes, bool kTurnedA>
  __device__ __forceinline__ void start(const WgmmaTile& a, unsigned rows, int group, bool add) {
    const WgmmaTile one = wgmma_rows<kPanelBytes>(rows + group * (kFirst / 64) * kPanelBytes);
    const WgmmaTile two = wgmma_rows<kPanelBytes>(rows + 2 * kPanelBytes + group * 64);
    wgmma_fence();
    start_piece<Element, kFirst, kSteps, kStepA, kTurnedA>(a, one, first, add);
    if constexpr (kSecond > 0) {
      start_piece<Element, kSecond, kSteps, kStepA, kTurnedA>(a, two, second, add);
    }
    wgmma_commit();
  }
  __device__ __forceinline__ void fence_operands() {
    wgmma_fence_operands(reinterpret_cast<float(&)[kFirst / 2]>(first));
    if constexpr (kSecond > 0)
      wgmma_fence_operands(reinterpret_cast<float(&)[kSecond / 2]>(second));
  }
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < kFirst / 2; ++i) first[i / 4][i % 4] = 0.0f;
#pragma unroll
    for (int i = 0; i < kSecond / 2; ++i) second[i / 4][i % 4] = 0.0f;
  }

 private:
  template <class Element, int kColumns, int kSteps, int kStepA, bool kTurnedA>
  static __device__ __forceinline__ void start_piece(const WgmmaTile& a, const WgmmaTile& b,
                                                     float (&sums)[kColumns / 8][4], bool add) {
    float(&d)[kColumns / 2] = reinterpret_cast<float(&)[kColumns / 2]>(sums);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const unsigned long long a_at = a.at(step * kStepA), b_at = b.at(step * 16 * 128);
      if constexpr (kTurnedA) {
        Wgmma<kColumns, true, Element>::run_turned(d, a_at, b_at, add || step > 0);
      } else {
        Wgmma<kColumns, true, Element>::run(d, a_at, b_at, add || step > 0);
      }
    }
  }
};

// A consumer. Stages of p and ds alternate from block to block.
template <class Config>
struct ColumnConsumer {
  using Element = typename Config::Element;
  using Ring = GradientRing<Config>;
  using Dq = DqTile<Config>;
  static constexpr int kM = Config::kTileM, kN = Config::kTileN;
  static constexpr int kWidth = Config::kWidth, kValueWidth = Config::kValueWidth;
  static constexpr int kThreads = kConsumerThreads<Config>;
  static constexpr int kQueries = kM / 2;
  static_assert(kM == 64 && kN == 64 && kThreads == 256, "p and ds are one panel of shared memory");
  static_assert(kWidth == kValueWidth, "dk and dv are shared out alike");

  // True if registers suffice for a product of dq beside scores.
  static constexpr bool kDqBeside = kWidth <= 192;
  static constexpr bool kMods = GradientUnits<Config>::kMods;
  static constexpr bool kListed = HasMaskMod<Config>::kValue;
  static constexpr bool kTight = !kDqBeside || kScoresModified<Config> || kMods;

  using Scores = float[1][kQueries / 8][4];
  using Operands = Accumulated<Element, kQueries / 8>[1];
  using State = PipelineState<Config::kStages>;
  using Half = ColumnHalf<kWidth>;

  const AttentionBackwardWarpgroupsParams& p;
  const Ring ring;
  volatile KeyTile* const tile;
  const QueryVisits<Config> visits;
  const GradientUnits<Config> units;
  Half dk, dv;

  __device__ __forceinline__ ColumnConsumer(const AttentionBackwardWarpgroupsParams& params,
                                            const Ring& shared_ring, volatile KeyTile* key_tile)
      : p(params),
        ring(shared_ring),
        tile(key_tile),
        visits{params.backward, key_tile},
        units(params.backward) {}

  // A thread's number in its warpgroup, and the number of that.
  static __device__ __forceinline__ int thread() { return thread_index() % 128; }
  static __device__ __forceinline__ int group() { return warp_uniform(threadIdx.x / 128); }
  static __device__ __forceinline__ int lane_query() { return thread_index() % 4 * 2; }
  static __device__ __forceinline__ void arrive(unsigned barrier) {
    if (threadIdx.x % 32 == 0) mbarrier_arrive(barrier);
  }

  __device__ __forceinline__ bool is_full(const QueryCursor& at, const State& state) const {
    if constexpr (kListed) return ring.visit_full(state.stage);
    return uniform(visits.full(at));
  }

  // sums = the keys times the own queries of a stage: s^T or dp^T.
  __device__ __forceinline__ void start_scores(unsigned keys, unsigned queries, unsigned full,
                                               unsigned phase, Scores& sums) const {
    // Else the compiler keeps an address for each step, and has no registers for them.
    const WgmmaTile a = wgmma_columns(kTight ? warp_uniform(keys) : keys);
    const WgmmaTile b = wgmma_columns(queries + group() * kQueries * 128);
    mbarrier_wait(full, phase);
    start_rows_by_rows<Element, kWidth, kN, kM>(a, b,
                                                reinterpret_cast<float(&)[kQueries / 2]>(sums));
  }
  __device__ __forceinline__ void start_s(const State& state, Scores& s) const {
    start_scores(ring.k(), ring.q(state.stage), ring.q_full(state.stage), state.phase, s);
  }
  __device__ __forceinline__ void start_dp(const State& state, Scores& dp) const {
    start_scores(ring.v(), ring.dout(state.stage), ring.dout_full(state.stage), state.phase, dp);
  }
  // dv += p^T dout, dk += ds^T q, dq = ds k: the own columns.
  __device__ __forceinline__ void start_gradient(unsigned p_tile, unsigned queries,
                                                 Half& sums) const {
    sums.template start<Element, kM / 16, 32, kM * 128, false>(wgmma_columns(p_tile), queries,
                                                               group(), true);
  }
  __device__ __forceinline__ void start_dq(unsigned ds, Half& dq) const {
    dq.template start<Element, kN / 16, 16 * 128, kN * 128, true>(wgmma_rows<kN * 128>(ds),
                                                                  ring.k(), group(), false);
  }
  // Nothing is under way behind it.
  __device__ __forceinline__ void finish_dq(const QueryCursor& at, Half& dq) const {
    wgmma_wait<0>();
    dq.fence_operands();
    const AttentionBackwardParams& b = p.backward;
    const long long first = Config::kPacked
                                ? tile->start_q / kM + tile->sequence
                                : static_cast<long long>(tile->sequence) * b.heads * p.dq_tiles;
    float* const to =
        static_cast<float*>(b.dq) +
        (first + static_cast<long long>(at.head) * p.dq_tiles + at.index) * Dq::kFloats +
        thread() * 4;
    // Ahead of the address, NVRTC 12.9 ends by a segmentation fault wherever scores are modified.
    if (b.dq == nullptr) return;
    add_piece(to + Half::first_column(group()) * kM, dq.first);
    if constexpr (Half::kSecond > 0) add_piece(to + Half::second_column(group()) * kM, dq.second);
  }
  // Columns of dq lie one group of eight behind another, those of the next part too.
  template <int kTiles>
  static __device__ __forceinline__ void add_piece(float* to, const float (&sums)[kTiles][4]) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) add_four(to + n * Dq::kGroupFloats, sums[n]);
  }

  // The own half of p or ds, transposed, into shared memory.
  __device__ __forceinline__ void put(unsigned to, const Operands& words) const {
    const unsigned at = to + panel_offset(thread() / 32 * 16 + thread() % 16, thread() % 32 / 16);
#pragma unroll
    for (int step = 0; step < kQueries / 16; ++step) {
      store_matrix(at ^ (group() * 64 + step * 32), words[0].word[step]);
    }
  }

  // Scores that are under way become p and ds in shared memory. kBehind products were asked for
  // after those of dp.
  template <int kBehind>
  __device__ __forceinline__ void make_p_and_ds(const QueryCursor& at, const State& state,
                                                int stage, Scores& s, Scores& dp) const {
    ScoreTile scores;
    scores.key = tile->first + thread() / 32 * 16 + thread() % 32 / 4;
    scores.lane_query = lane_query();
    scores.query = at.index * kM + group() * kQueries;
    if constexpr (Config::kAlibi) {
      const AttentionBackwardParams& b = p.backward;
      scores.offset = tile->keys - tile->rows;
      scores.slope = load_element(static_cast<const float*>(b.alibi_slopes) +
                                  tile->sequence * b.alibi_batch_stride + at.head);
    }
    if constexpr (kMods) scores.sequence = tile->sequence, scores.head = at.head;
    const unsigned rows = ring.rows(state.stage) + 4 * (group() * kQueries + lane_query());
    const bool full = is_full(at, state);
    Operands words;
    wgmma_wait<kBehind + 1>();
    wgmma_fence_operands(reinterpret_cast<float(&)[kQueries / 2]>(s));
    if (full) {
      score_weights<Config, false>(s, words, units, scores, KeyWindow{}, 0, rows,
                                   UnclampedPositions{});
    } else {
      score_weights<Config, true>(s, words, units, scores, tile->window(), tile->rows, rows);
    }
    put(ring.p(stage), words);
    wgmma_wait<kBehind>();
    wgmma_fence_operands(reinterpret_cast<float(&)[kQueries / 2]>(dp));
    if (full) {
      score_gradients<Config, false>(s, dp, words, rows + 4 * kM);
    } else {
      score_gradients<Config, true>(s, dp, words, rows + 4 * kM);
    }
    put(ring.ds(stage), words);
    fence_shared_writes();
  }

  __device__ __forceinline__ void start_gradient(const State& state, int stage) {
    start_gradient(ring.ds(stage), ring.q(state.stage), dk);
    start_gradient(ring.p(stage), ring.dout(state.stage), dv);
  }
  // kBehind products were asked for after those of dk and dv.
  template <int kBehind>
  __device__ __forceinline__ void finish_gradients(const State& state) {
    wgmma_wait<kBehind>();
    dk.fence_operands();
    dv.fence_operands();
    arrive(ring.q_empty(state.stage));
    arrive(ring.dout_empty(state.stage));
  }
  // All blocks of queries. Where the loop begins and ends no product is under way.
  __device__ __forceinline__ void walk(QueryCursor at) {
    State state;
    Scores s, dp;
    Half dq;
    int stage = 0;
    start_s(state, s);
    start_dp(state, dp);
    if constexpr (kListed) at = ring.visit_cursor(state.stage);
    make_p_and_ds<0>(at, state, stage, s, dp);
    named_barrier_sync<1, kThreads>();
    QueryCursor next = at;
    if constexpr (!kListed) next = visits.next(at);
#pragma unroll 1
    while (kListed ? ring.more_visits(state.stage) : uniform(visits.there(next))) {
      State ahead = state;
      ahead.next();
      start_gradient(state, stage);
      start_s(ahead, s);
      start_dp(ahead, dp);
      if constexpr (kDqBeside) start_dq(ring.ds(stage), dq);
      finish_gradients<kDqBeside ? 3 : 2>(state);
      if constexpr (kListed) next = ring.visit_cursor(ahead.stage);
      make_p_and_ds<kDqBeside ? 1 : 0>(next, ahead, stage ^ 1, s, dp);
      if constexpr (!kDqBeside) start_dq(ring.ds(stage), dq);
      finish_dq(at, dq);
      named_barrier_sync<1, kThreads>();
      at = next, state = ahead, stage ^= 1;
      if constexpr (!kListed) next = visits.next(next);
    }
    start_gradient(state, stage);
    start_dq(ring.ds(stage), dq);
    finish_gradients<1>(state);
    finish_dq(at, dq);
  }

  template <class Stored, int kTiles>
  __device__ __forceinline__ void store_piece(const float (&sums)[kTiles][4], float scale,
                                              Stored* to, long long stride, int column,
                                              int columns) const {
    const int row = tile->first + thread() / 32 * 16;
    store_rows<ColumnShare<8 * kTiles, 1>>(sums, 0, scale, to + column, stride, row, tile->keys,
                                           tile->written, columns - column);
  }
  template <class Stored>
  __device__ __forceinline__ void store_half(const Half& sums, float scale, Stored* to,
                                             long long batch_stride, long long stride,
                                             long long head_stride, int columns) const {
    const int head = Config::kHeadsApart ? tile->first_head : tile->kv_head;
    to += (Config::kPacked ? tile->start_k * stride : tile->sequence * batch_stride) +
          head * head_stride;
    store_piece(sums.first, scale, to, stride, Half::first_column(group()), columns);
    if constexpr (Half::kSecond > 0) {
      store_piece(sums.second, scale, to, stride, Half::second_column(group()), columns);
    }
  }

  __device__ __forceinline__ void run() {
    dk.clear();
    dv.clear();
    const QueryCursor first = visits.begin();
    if (uniform(visits.there(first))) walk(first);
    const AttentionBackwardParams& b = p.backward;
    using Stored = typename Choose<Config::kHeadsApart, float, Element>::Type;
    if (b.dk) {
      store_half(dk, b.softmax_scale, static_cast<Stored*>(b.dk), b.dk_batch_stride,
                 b.dk_token_stride, b.dk_head_stride, b.head_dim);
    }
    if (b.dv) {
      store_half(dv, 1.0f, static_cast<Stored*>(b.dv), b.dv_batch_stride, b.dv_token_stride,
                 b.dv_head_stride, b.value_dim);
    }
  }
};

}  // namespace lathe
