// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A warpgroup that computes the forward's products and softmax: one loop over the visits of a tile,
// whoever names them. The kernels give it a VisitSource (CursorVisits, MessageVisits):
//
//   Visit                        what the walk keeps of a visit: a cursor, or whether another
//   follows first(k_state)               the first visit of a tile that has one; its keys have this
//   stage advance(visit, k_state)      goes to the next visit there(visit)                 false
//   behind the last one landed(ring, k_state)        what is sent along with the keys, which have
//   landed products_issued(visit, sent) runs beside the visit's products modify(visit, sent, s,
//   ...)  applies mods and masks to the visit's scores kFromZero, from_zero()       whether o is 0
//   where the walk begins, at compile time or not
#pragma once
#include "attention/results.cuh"
#include "attention/scores.cuh"
#include "attention/sm90/attention_producer.cuh"
#include "attention/sm90/lazy_rescale.cuh"
#include "attention/sm90/ping_pong.cuh"
#include "attention/sm90/register_split.cuh"
#include "attention/sm90/uniform_tile.cuh"

namespace lathe {

// O, S and P of a thread leave few of its 240 registers: it spends instructions to hold less.
template <class Config>
constexpr bool kTight = Config::kValueWidth / 2 + Config::kTileN / 2 + Config::kTileN / 4 > 160;

// A KeptTile has what the end of a tile needs of it. Where registers are tight a warp keeps it in
// shared memory while it walks the keys.
template <bool kInMemory>
struct KeptTile {
  const QueryTile& tile;
  unsigned slot;

  __device__ __forceinline__ void put() const {
    if constexpr (!kInMemory) return;
    __syncwarp();  // the tile before has been read
    if (threadIdx.x % 32 == 0) {
      const int words[] = {tile.sequence, tile.head,  tile.start_q, tile.rows,
                           tile.written,  tile.first, tile.group};
#pragma unroll
      for (int i = 0; i < 7; ++i) store_shared_word(slot + 4 * i, words[i]);
    }
    __syncwarp();
  }
  __device__ __forceinline__ QueryTile get() const {
    if constexpr (!kInMemory) return tile;
    const auto word = [&](int i) { return load_shared_word(slot + 4 * i); };
    QueryTile kept = {};
    kept.sequence = word(0), kept.head = word(1), kept.start_q = word(2);
    kept.rows = word(3), kept.written = word(4), kept.first = word(5);
    kept.group = word(6);
    return kept;
  }
};

template <class Config>
struct AttentionConsumer {
  using Element = typename Config::Element;
  static constexpr int kTileN = Config::kTileN, kTileM = Config::kTileM;
  static constexpr int kKeyTiles = kTileN / 8, kOutTiles = Config::kValueWidth / 8;

  const AttentionRing<Config> ring;
  const PingPongBarrier<Config> ping_pong;
  PipelineState<1> q_state;
  PipelineState<Config::kStages> k_state, v_state;

  using Scores = float[1][kKeyTiles][4];
  using O = float[1][kOutTiles][4];
  using P = Accumulated<Element, kKeyTiles>;

  static __device__ __forceinline__ void arrive(unsigned barrier) {
    if (threadIdx.x % 32 == 0) mbarrier_arrive(barrier);
  }

  __device__ __forceinline__ WgmmaTile values() const {
    return warp_uniform(wgmma_rows<kTileN * 128>(ring.v(v_state.stage)));
  }

  // s = q k^T. Returns what is sent along with the keys.
  template <class VisitSource>
  __device__ __forceinline__ auto start_qk(WgmmaTile q, const VisitSource& visits, Scores& s) {
    const WgmmaTile k = warp_uniform(wgmma_columns(ring.k(k_state.stage)));
    mbarrier_wait(ring.k_full(k_state.stage), k_state.phase);
    const auto sent = visits.landed(ring, k_state);
    ping_pong.sync();
    start_rows_by_rows<Element, Config::kWidth, kTileM, kTileN>(
        q, k, reinterpret_cast<float(&)[kTileN / 2]>(s));
    return sent;
  }
  // o += P v
  __device__ __forceinline__ void start_pv(WgmmaTile v, const P& p_words, O& o) {
    mbarrier_wait(ring.v_full(v_state.stage), v_state.phase);
    auto& d = reinterpret_cast<float(&)[Config::kValueWidth / 2]>(o);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kTileN / 16; ++step) {
      Wgmma<Config::kValueWidth, true, Element>::run(d, p_words.word[step], v.at(step * 16 * 128),
                                                     1);
    }
    wgmma_commit();
  }
  template <int kPending>
  __device__ __forceinline__ void finish_qk(Scores& s) {
    wgmma_wait<kPending>();
    wgmma_fence_operands(reinterpret_cast<float(&)[kTileN / 2]>(s));
    arrive(ring.k_empty(k_state.stage));
    k_state.next();
  }
  __device__ __forceinline__ void finish_pv(O& o) {
    wgmma_wait<0>();
    wgmma_fence_operands(reinterpret_cast<float(&)[Config::kValueWidth / 2]>(o));
    arrive(ring.v_empty(v_state.stage));
    v_state.next();
  }

  // The largest score of a row in one key block and before; each lane's own.
  static __device__ __forceinline__ float larger_of(float most, const Scores& s, int half) {
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
      most = fmaxf(most, fmaxf(s[0][n][2 * half], s[0][n][2 * half + 1]));
    }
    return most;
  }
  // Takes the larger maximum of a row if it exceeds the threshold, and scales the row's sum.
  static __device__ __forceinline__ void raise_maximum(float most, float t, float& before,
                                                       float& sum, float& scale) {
    most = quad_max(most);
    if (!exceeds_threshold(most, before, t)) most = before;
    scale = ex2_flushed(__fmul_rn(__fsub_rn(before, finite_base(most)), t));
    sum = __fmul_rn(sum, scale);
    before = most;
  }
  // S of half the rows becomes P.
  static __device__ __forceinline__ void exponentiate_half(Scores& s, int half, float t,
                                                           RunningSoftmax<1>& softmax) {
    const float base = finite_base(softmax.most[0][half]), shift = __fmul_rn(base, t);
    float sum = 0.0f;
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
      float(&pair)[4] = s[0][n];
      pair[2 * half] = weight<Element>(pair[2 * half], base, t, shift);
      pair[2 * half + 1] = weight<Element>(pair[2 * half + 1], base, t, shift);
      sum += pair[2 * half] + pair[2 * half + 1];
    }
    softmax.sum[0][half] += sum;
  }
  // S becomes P, still in float32, since the words of the block before are in use. Returns whether
  // O is to be scaled. A thread compares its own scores with the threshold, and lanes exchange
  // maxima, by shuffles that queue behind wgmma's reads of shared memory, only where one of a
  // warp's threads has met such a score.
  static __device__ __forceinline__ bool online_softmax(Scores& s, float t,
                                                        RunningSoftmax<1>& softmax,
                                                        float (&scale)[2]) {
    auto& before = softmax.most[0];
    if constexpr (kOneByOne<Config>) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        raise_maximum(larger_of(before[half], s, half), t, before[half], softmax.sum[0][half],
                      scale[half]);
        exponentiate_half(s, half, t, softmax);
      }
      return uniform(scale[0] != 1.0f || scale[1] != 1.0f);
    }
    const float most[2] = {larger_of(before[0], s, 0), larger_of(before[1], s, 1)};
    const bool grows = __any_sync(
        ~0u, exceeds_threshold(most[0], before[0], t) || exceeds_threshold(most[1], before[1], t));
    if (grows) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        raise_maximum(most[half], t, before[half], softmax.sum[0][half], scale[half]);
      }
    }
    exponentiate_half(s, 0, t, softmax);
    exponentiate_half(s, 1, t, softmax);
    return grows;
  }
  static __device__ __forceinline__ void pack(const Scores& s, P& p_words) {
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
      p_words.put(n, 0, s[0][n][0], s[0][n][1]);
      p_words.put(n, 1, s[0][n][2], s[0][n][3]);
    }
  }

  static __device__ __forceinline__ void rescale(O& o, const float (&scale)[2]) {
#pragma unroll
    for (int n = 0; n < kOutTiles; ++n) {
#pragma unroll
      for (int c = 0; c < 4; ++c) o[0][n][c] *= scale[c / 2];
    }
  }

  // Walks all visits of a tile that has one: o and the softmax go on from what they are.
  template <class VisitSource>
  __device__ __forceinline__ void walk(const VisitSource& visits, const QueryTile& tile,
                                       const ScoreUnits<ConsumerConfig<Config>>& units,
                                       RunningSoftmax<1>& softmax, O& o) {
    Scores s;
    P p_words;
    float scale[2];
    typename VisitSource::Visit visit = visits.first(k_state);
    mbarrier_wait(ring.q_full(), q_state.phase);
    q_state.next();
    const WgmmaTile q = warp_uniform(wgmma_columns(ring.q() + threadIdx.x / 128 * 64 * 128));
    auto sent = start_qk(q, visits, s);
    ping_pong.arrive();
    finish_qk<0>(s);
    visits.modify(visit, sent, s, units, tile);
    const bool grows = online_softmax(s, units.t, softmax, scale);
    pack(s, p_words);
    if constexpr (!VisitSource::kFromZero) {
      if (!visits.from_zero() && grows) rescale(o, scale);
    }
    // One more visit, while the values of the one before are multiplied.
#pragma unroll 1
    for (visits.advance(visit, k_state); visits.there(visit); visits.advance(visit, k_state)) {
      const WgmmaTile v = values();
      sent = start_qk(q, visits, s);
      start_pv(v, p_words, o);
      ping_pong.arrive();
      visits.products_issued(visit, sent);
      finish_qk<1>(s);
      visits.modify(visit, sent, s, units, tile);
      const bool grows = online_softmax(s, units.t, softmax, scale);
      finish_pv(o);
      pack(s, p_words);
      if (grows) rescale(o, scale);
    }
    arrive(ring.q_empty());  // the last scores are there
    start_pv(values(), p_words, o);
    finish_pv(o);
  }
};

}  // namespace lathe
