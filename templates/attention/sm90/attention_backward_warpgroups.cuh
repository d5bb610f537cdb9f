// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// attention_backward_warpgroups: attention_backward.cuh's results, by warpgroups with roles
// (sm_90a).
//
//   s^T = k q^T,  dp^T = v dout^T                    64 keys of a warpgroup by kTileM queries
//   p = exp(x - lse),  ds = p (dp - error)           in registers, as the portable kernel has them
//   dv += p^T dout,  dk += ds^T q                    A: the registers of p and ds as they stand
//   dq  = ds k                                       A: ds of all keys, through shared memory
//
// A block has 128 keys and two warpgroups that own 64 of them each, with dk and dv in registers. It
// walks the blocks of queries that see its keys. A third warpgroup copies: one thread q and dout by
// tensor maps into a ring of kStages, one warp lse2 and error. Of dq's 64 x 128 or 128 x 64 sums a
// warpgroup has a part of 64 x 64, which it adds to a tile in memory (dq_tiles.cuh).
//
// Products run beside the warps that ask for them. A warpgroup asks for the scores of the next
// block before it waits for the last products of this one: while it adds to dq and computes p and
// ds, the tensor cores have work.
#pragma once
#include "attention/backward/gradient_sums.cuh"
#include "attention/backward/score_gradients.cuh"
#include "attention/sm90/dq_tiles.cuh"
#include "attention/sm90/gradient_ring.cuh"
#include "common/wgmma.cuh"

namespace lathe {

// A warpgroup that multiplies.
template <class Config>
struct GradientMultiplier {
  using Element = typename Config::Element;
  using Ring = GradientRing<Config>;
  using Dq = DqTile<Config>;
  static constexpr int kM = Config::kTileM, kN = Config::kTileN;
  static constexpr int kWidth = Config::kWidth, kValueWidth = Config::kValueWidth;
  static constexpr int kThreads = kMultiplyThreads<Config>;
  static_assert(kN == kThreads / 2, "64 keys a warpgroup");
  static_assert(Dq::kParts == kThreads / 128, "a part of dq a warpgroup");

  using Scores = float[1][kM / 8][4];
  using Operands = Accumulated<Element, kM / 8>[1];
  using Place = RingPlace<Config::kStages>;

  const AttentionBackwardWarpgroupsParams& p;
  const Ring ring;
  volatile KeyTile* const tile;
  const QueryVisits<Config> visits;
  const GradientUnits<Config> units;
  float dk[1][kWidth / 8][4] = {}, dv[1][kValueWidth / 8][4] = {};

  static __device__ __forceinline__ int group() { return in_place(threadIdx.x / 128); }
  static __device__ __forceinline__ void arrive(unsigned barrier) {
    if (threadIdx.x % 32 == 0) mbarrier_arrive(barrier);
  }
  // The same in all lanes, and told to the compiler: descriptors are in registers that a warp
  // shares.
  static __device__ __forceinline__ unsigned shared_by_warp(unsigned address) {
    return static_cast<unsigned>(in_place(static_cast<int>(address)));
  }

  // sums = own 64 rows of `keys` times the rows of `queries`: s^T or dp^T.
  template <int kColumns>
  __device__ __forceinline__ void start_scores(unsigned keys, unsigned queries, unsigned full,
                                               unsigned parity, Scores& sums) const {
    const WgmmaTile a = wgmma_columns(shared_by_warp(keys) + group() * 64 * 128);
    const WgmmaTile b = wgmma_columns(shared_by_warp(queries));
    mbarrier_wait(full, parity);
    wgmma_begin();
#pragma unroll
    for (int step = 0; step < kColumns / 16; ++step) {
      const unsigned panel = step / 4, inside = step % 4 * 32;
      Wgmma<kM, false, Element>::run(reinterpret_cast<float(&)[kM / 2]>(sums),
                                     a.at(panel * kN * 128 + inside),
                                     b.at(panel * kM * 128 + inside), step > 0);
    }
    wgmma_commit();
  }
  // sums += words times the rows of `queries`: dv += p^T dout or dk += ds^T q.
  template <int kColumns>
  __device__ __forceinline__ void start_sums(const Operands& words, unsigned queries,
                                             float (&sums)[1][kColumns / 8][4]) const {
    const WgmmaTile b = wgmma_rows<kM * 128>(shared_by_warp(queries));
    wgmma_begin();
#pragma unroll
    for (int step = 0; step < kM / 16; ++step) {
      Wgmma<kColumns, true, Element>::run(reinterpret_cast<float(&)[kColumns / 2]>(sums),
                                          words[0].word[step], b.at(step * 16 * 128), 1);
    }
    wgmma_commit();
  }
  // dq = ds k of the warpgroup's part, over all keys.
  __device__ __forceinline__ void start_dq(unsigned ds, float (&dq)[32]) const {
    const int part = group();
    const WgmmaTile a = wgmma_rows<kN * 128>(shared_by_warp(ds) + Dq::row(part) / 64 * kN * 128);
    const WgmmaTile b =
        wgmma_rows<kN * 128>(shared_by_warp(ring.k()) + Dq::column(part) / 64 * kN * 128);
    wgmma_begin();
#pragma unroll
    for (int step = 0; step < kN / 16; ++step) {
      Wgmma<64, true, Element>::run_turned(dq, a.at(step * 16 * 128), b.at(step * 16 * 128),
                                           step > 0);
    }
    wgmma_commit();
  }

  // ds^T of own keys into the tile [keys][queries] that dq's product reads.
  __device__ __forceinline__ void store_ds(const Operands& ds, unsigned to) const {
    const int lane = thread_index() % 32;
    const unsigned row = thread_index() / 32 * 16 + lane % 16;
    const unsigned at = to + panel_offset(row, lane / 16);
#pragma unroll
    for (int step = 0; step < kM / 16; ++step) {
      store_matrix((at ^ (step % 4 * 32)) + step / 4 * kN * 128, ds[0].word[step]);
    }
  }

  __device__ __forceinline__ ScorePlace score_place(const QueryPlace& at) const {
    ScorePlace place;
    const int thread = thread_index();
    place.key = tile->first + thread / 32 * 16 + thread % 32 / 4;
    place.query = at.cursor * kM;
    place.lane_query = thread % 4 * 2;
    place.offset = tile->keys - tile->rows;
    if constexpr (Config::kAlibi) {
      const AttentionBackwardParams& b = p.backward;
      place.slope = load_element(static_cast<const float*>(b.alibi_slopes) +
                                 tile->sequence * b.alibi_batch_stride + at.head);
    }
    return place;
  }
  // Which masks a block needs is the same for the whole block of threads.
  __device__ __forceinline__ void weigh(const QueryPlace& at, bool full, unsigned rows, Scores& s,
                                        Operands& weights) const {
    const ScorePlace place = score_place(at);
    rows += 4 * place.lane_query;
    if (full) {
      score_weights<Config, false>(s, weights, units, place, tile->window(), tile->rows, rows);
    } else {
      score_weights<Config, true>(s, weights, units, place, tile->window(), tile->rows, rows);
    }
  }
  __device__ __forceinline__ void differentiate(bool full, unsigned rows, const Scores& s,
                                                const Scores& dp, Operands& ds) const {
    rows += 4 * kM + thread_index() % 4 * 8;
    if (full) {
      score_gradients<Config, false>(s, dp, ds, rows);
    } else {
      score_gradients<Config, true>(s, dp, ds, rows);
    }
  }

  __device__ __forceinline__ void add_dq(const QueryPlace& at, const float (&dq)[32]) const {
    const AttentionBackwardParams& b = p.backward;
    const int heads = b.heads;
    long long index = at.cursor;
    if constexpr (Config::kPacked) {
      index += static_cast<long long>(at.head) * p.dq_tiles + tile->start_q / kM + tile->sequence;
    } else {
      index += (static_cast<long long>(tile->sequence) * heads + at.head) * p.dq_tiles;
    }
    float* to = static_cast<float*>(b.dq) + index * Dq::kFloats +
                threadIdx.x / 128 * Dq::kPartFloats + threadIdx.x % 128 * 4;
#pragma unroll
    for (int n = 0; n < 8; ++n) add_four(to + n * Dq::kGroupFloats, dq + 4 * n);
  }

  __device__ __forceinline__ void start_s(const Place& place, Scores& s) const {
    start_scores<kWidth>(ring.k(), ring.q(place.stage), ring.q_full(place.stage), place.parity, s);
  }
  __device__ __forceinline__ void start_dp(const Place& place, Scores& dp) const {
    start_scores<kValueWidth>(ring.v(), ring.dout(place.stage), ring.dout_full(place.stage),
                              place.parity, dp);
  }
  // ds, which goes to where dq's product reads it; and the three products that sum up are asked
  // for.
  __device__ __forceinline__ void start_all_sums(const QueryPlace& at, const Place& place,
                                                 const Scores& s, const Scores& dp,
                                                 const Operands& weights, unsigned slot,
                                                 float (&dq)[32]) {
    Operands ds;
    differentiate(uniform(visits.full(at)), ring.rows(place.stage), s, dp, ds);
    // The other slot may still be read by the other warpgroup. This one is free: both have waited
    // for the dq of two blocks ago before they came to the last barrier.
    store_ds(ds, ring.ds(slot));
    fence_shared_writes();  // ahead of the barrier behind which wgmma reads ds
    start_sums<kValueWidth>(weights, ring.dout(place.stage), dv);
    named_barrier_wait<1, kThreads>();  // ds of all keys is there
    start_dq(ring.ds(slot), dq);
    start_sums<kWidth>(ds, ring.q(place.stage), dk);
  }
  // dv and dq, when at most kPending products are under way, which are later ones.
  template <int kPending>
  __device__ __forceinline__ void finish_dq(const QueryPlace& at, const Place& place,
                                            float (&dq)[32]) {
    wgmma_wait<kPending>();
    in_registers(dq);
    in_registers(reinterpret_cast<float(&)[kValueWidth / 2]>(dv));
    arrive(ring.dout_empty(place.stage));
    if (p.backward.dq) add_dq(at, dq);
  }
  template <int kPending>
  __device__ __forceinline__ void finish_dk(const Place& place) {
    wgmma_wait<kPending>();
    in_registers(reinterpret_cast<float(&)[kWidth / 2]>(dk));
    arrive(ring.q_empty(place.stage));
  }
  // Scores that are under way become weights, while the product of dp runs.
  template <int kPending>
  __device__ __forceinline__ void weigh(const QueryPlace& at, const Place& place, Scores& s,
                                        Scores& dp, Operands& weights) const {
    wgmma_wait<kPending>();
    in_registers(reinterpret_cast<float(&)[kM / 2]>(s));
    weigh(at, uniform(visits.full(at)), ring.rows(place.stage), s, weights);
    wgmma_wait<0>();
    in_registers(reinterpret_cast<float(&)[kM / 2]>(dp));
  }

  // All blocks of queries. Where the loop begins and ends no product is under way: the compiler
  // follows none around it or out of it.
  __device__ __forceinline__ void walk(QueryPlace at) {
    Place place;
    Scores s, dp;
    Operands weights;
    float dq[32];
    start_s(place, s);
    start_dp(place, dp);
    weigh<1>(at, place, s, dp, weights);
    unsigned slot = 0;
    QueryPlace next = visits.next(at);
#pragma unroll 1
    while (uniform(visits.there(next))) {
      start_all_sums(at, place, s, dp, weights, slot, dq);
      Place ahead = place;
      ahead.next();
      finish_dq<1>(at, place, dq);
      start_s(ahead, s);
      finish_dk<1>(place);
      start_dp(ahead, dp);
      weigh<1>(next, ahead, s, dp, weights);
      at = next, place = ahead, slot ^= 1;
      next = visits.next(at);
    }
    start_all_sums(at, place, s, dp, weights, slot, dq);
    finish_dq<1>(at, place, dq);
    finish_dk<0>(place);
  }

  __device__ __forceinline__ void store() const {
    const AttentionBackwardParams& b = p.backward;
    using Stored = typename Choose<Config::kHeadsApart, float, Element>::Type;
    const int keys = tile->keys, written = tile->written;
    const int head = Config::kHeadsApart ? tile->first_head : tile->kv_head;
    const int row = tile->first + thread_index() / 32 * 16;
    const auto start = [&](long long batch_stride, long long token_stride) {
      return Config::kPacked ? tile->start_k * token_stride : tile->sequence * batch_stride;
    };
    if (b.dk) {
      Stored* to = static_cast<Stored*>(b.dk) + start(b.dk_batch_stride, b.dk_token_stride) +
                   head * b.dk_head_stride;
      store_rows<ColumnShare<kWidth, 1>>(dk[0], 0, b.softmax_scale, to, b.dk_token_stride, row,
                                         keys, written, b.head_dim);
    }
    if (b.dv) {
      Stored* to = static_cast<Stored*>(b.dv) + start(b.dv_batch_stride, b.dv_token_stride) +
                   head * b.dv_head_stride;
      store_rows<ColumnShare<kValueWidth, 1>>(dv[0], 0, 1.0f, to, b.dv_token_stride, row, keys,
                                              written, b.value_dim);
    }
  }

  __device__ __forceinline__ void run() {
    const QueryPlace first = visits.begin();
    if (uniform(visits.there(first))) walk(first);
    store();
  }
};

template <class Config>
__device__ void attention_backward_warpgroups(const AttentionBackwardWarpgroupsParams& p) {
  extern __shared__ __align__(1024) char shared[];
  const GradientRing<Config> ring = {shared_address(shared)};
  volatile KeyTile* const tile = reinterpret_cast<volatile KeyTile*>(
      shared + AttentionBackwardWarpgroupsSmem<Config>::kTileAt);
  constexpr unsigned kMultiply = kMultiplyThreads<Config>;
  if (threadIdx.x == kMultiply) {
    const int slice = static_cast<int>(blockIdx.x % p.backward.slices);
    key_tile_begin<Config>(p.backward, blockIdx.x / p.backward.slices, slice, tile);
    key_tile_at<Config>(slice * Config::kTileN, tile);
    ring.init();
  }
  __syncthreads();  // the tile and the barriers are there for all
  const bool work = tile->first < tile->written;
  if (threadIdx.x >= kMultiply) {
    give_registers<24>();
    if (work && threadIdx.x == kMultiply) copy_tiles<Config>(p, ring, tile);
    if (work && threadIdx.x / 32 == kMultiply / 32 + 1) {
      copy_row_values<Config>(p.backward, ring, tile);
    }
  } else {
    take_registers<240>();
    if (work) {
      GradientMultiplier<Config>{
          p, ring, tile, {p.backward, tile}, GradientUnits<Config>(p.backward)}
          .run();
    }
  }
}

}  // namespace lathe
