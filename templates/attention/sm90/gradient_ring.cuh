// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The shared memory of the backward by warpgroups, and the warps that fill it.
#pragma once
#include "attention/sm90/dq_order.cuh"
#include "attention/softmax.cuh"
#include "common/box_coordinates.cuh"
#include "common/mbarrier.cuh"
#include "common/shared_memory.cuh"
#include "common/tma.cuh"
#include "common/types.cuh"
#include "params/attention_backward_warpgroups.h"

namespace lathe {

// True if the consumers share out columns (gradients_by_columns.cuh), and not keys.
template <class Config>
constexpr bool kByColumns = Config::kTileN == 64;

// [K][V][kStages tiles of Q][kStages tiles of dout][two of ds transposed]
// [two of p transposed, with kByColumns][kStages of lse2 and delta][barriers]
// [kStages visits, with a mask_mod][key tile]
//
// A tile is whole panels of 64 columns; columns behind the last one arrive as zeros.
template <class Config>
struct AttentionBackwardWarpgroupsSmem {
  static constexpr int kPanels = (Config::kWidth + 63) / 64;
  static constexpr int kValuePanels = (Config::kValueWidth + 63) / 64;
  static constexpr int kK = kPanels * Config::kTileN * 128;
  static constexpr int kV = kValuePanels * Config::kTileN * 128;
  static constexpr int kQ = kPanels * Config::kTileM * 128;
  static constexpr int kDout = kValuePanels * Config::kTileM * 128;
  static constexpr int kDs = Config::kTileM * Config::kTileN * 2;
  static constexpr int kP = kByColumns<Config> ? kDs : 0;
  static constexpr int kRows = 2 * 4 * Config::kTileM;
  static constexpr int kVAt = kK, kQAt = kVAt + kV;
  static constexpr int kDoutAt = kQAt + Config::kStages * kQ;
  static constexpr int kDsAt = kDoutAt + Config::kStages * kDout;
  static constexpr int kPAt = kDsAt + 2 * kDs;
  static constexpr int kRowsAt = kPAt + 2 * kP;
  static constexpr int kBarriers = kRowsAt + Config::kStages * kRows;
  static constexpr int kStageBarriers = Config::kDeterministic ? 8 : 4;
  static constexpr int kVisitsAt = kBarriers + 8 * kStageBarriers * Config::kStages;
  static constexpr int kVisit = HasMaskMod<Config>::kValue ? 16 : 0;
  static constexpr int kTileAt = kVisitsAt + kVisit * Config::kStages;
  static constexpr int kBytes = kTileAt + KeyTile::kBytes;
};

// The consumers are the first threads of the block.
template <class Config>
constexpr int kConsumerThreads = Config::kThreads - 128;

// The ring as addresses. A `full` barrier tells that bytes have landed, an `empty` one that all
// warps have read them. K comes with the first Q, V with the first dout.
template <class Config>
struct GradientRing {
  using Smem = AttentionBackwardWarpgroupsSmem<Config>;
  static constexpr int kStages = Config::kStages;
  unsigned shared;

  __device__ __forceinline__ unsigned k() const { return shared; }
  __device__ __forceinline__ unsigned v() const { return shared + Smem::kVAt; }
  __device__ __forceinline__ unsigned q(unsigned stage) const {
    return shared + Smem::kQAt + stage * Smem::kQ;
  }
  __device__ __forceinline__ unsigned dout(unsigned stage) const {
    return shared + Smem::kDoutAt + stage * Smem::kDout;
  }
  __device__ __forceinline__ unsigned ds(unsigned stage) const {
    return shared + Smem::kDsAt + stage * Smem::kDs;
  }
  __device__ __forceinline__ unsigned p(unsigned stage) const {
    return shared + Smem::kPAt + stage * Smem::kP;
  }
  // lse2 of the block's queries, and delta 4 * kTileM bytes further on.
  __device__ __forceinline__ unsigned rows(unsigned stage) const {
    return shared + Smem::kRowsAt + stage * Smem::kRows;
  }
  __device__ __forceinline__ unsigned barrier(unsigned index) const {
    return shared + Smem::kBarriers + 8 * index;
  }
  __device__ __forceinline__ unsigned q_full(unsigned stage) const { return barrier(stage); }
  __device__ __forceinline__ unsigned q_empty(unsigned stage) const {
    return barrier(kStages + stage);
  }
  // This barrier is that of dout, lse2 and delta.
  __device__ __forceinline__ unsigned dout_full(unsigned stage) const {
    return barrier(2 * kStages + stage);
  }
  __device__ __forceinline__ unsigned dout_empty(unsigned stage) const {
    return barrier(3 * kStages + stage);
  }
  // With an order of dq: the block may add to its tile, and has done so.
  __device__ __forceinline__ unsigned dq_turn(unsigned stage) const {
    return barrier(4 * kStages + stage);
  }
  __device__ __forceinline__ unsigned dq_added(unsigned stage) const {
    return barrier(5 * kStages + stage);
  }
  // At this barrier the thread that passes the turn on says that it has seen the other one, so that
  // nobody gets a phase ahead of it.
  __device__ __forceinline__ unsigned dq_seen(unsigned stage) const {
    return barrier(6 * kStages + stage);
  }
  // A word: whether the block is the first one there, so that nothing is in the tile yet.
  __device__ __forceinline__ unsigned dq_first(unsigned stage) const {
    return barrier(7 * kStages + stage);
  }

  // With a mask_mod a visit comes with its queries, so that nobody else reads lists where it
  // computes: the head, the list's entry, and whether a visit follows. Written before the queries
  // are asked for, and read like them.
  __device__ __forceinline__ unsigned visit(unsigned stage) const {
    return shared + Smem::kVisitsAt + stage * Smem::kVisit;
  }
  __device__ __forceinline__ void put_visit(unsigned stage, int head, int entry, bool more) const {
    store_shared_word(visit(stage), head);
    store_shared_word(visit(stage) + 4, entry);
    store_shared_word(visit(stage) + 8, more ? 1 : 0);
  }
  // Its index is that of the block.
  __device__ __forceinline__ QueryCursor visit_cursor(unsigned stage) const {
    return {load_shared_word(visit(stage)), load_shared_word(visit(stage) + 4) >> 1};
  }
  // Returns whether all of its pairs are kept.
  __device__ __forceinline__ bool visit_full(unsigned stage) const {
    return uniform((load_shared_word(visit(stage) + 4) & 1) == 0);
  }
  __device__ __forceinline__ bool more_visits(unsigned stage) const {
    return uniform(load_shared_word(visit(stage) + 8) != 0);
  }

  // By one thread, before anybody uses the ring.
  __device__ __forceinline__ void init() const {
    constexpr unsigned kWarps = kConsumerThreads<Config> / 32;
    for (unsigned stage = 0; stage < kStages; ++stage) {
      mbarrier_init(q_full(stage), 1);
      mbarrier_init(q_empty(stage), kWarps);
      mbarrier_init(dout_full(stage), 1 + 32);  // who copies dout, and the lanes of copy_row_values
      mbarrier_init(dout_empty(stage), kWarps);
      if constexpr (Config::kDeterministic) {
        mbarrier_init(dq_turn(stage), 1);
        mbarrier_init(dq_added(stage), kWarps);
        mbarrier_init(dq_seen(stage), 1);
      }
    }
    fence_mbarrier_init();
  }
};

// kRows rows and kWidth columns of a tensor of queries or keys, from `row` of the tile's sequence.
template <class Config, int kRows, int kWidth>
__device__ __forceinline__ void copy_panels(unsigned to, const TensorMap& map, unsigned full,
                                            const BoxCoordinates<Config>& at, int head) {
#pragma unroll
  for (int panel = 0; panel < (kWidth + 63) / 64; ++panel) {
    copy_box(to + panel * kRows * 128, map, full, panel * 64, at.row, head, at.sequence);
  }
}

template <class Config>
__device__ __forceinline__ BoxCoordinates<Config> key_coordinates(volatile KeyTile* tile) {
  return BoxCoordinates<Config>(*tile, tile->first, tile->start_k, tile->keys);
}

// The producer of tiles: one thread.
template <class Config>
__device__ __forceinline__ void copy_tiles(const AttentionBackwardWarpgroupsParams& p,
                                           const GradientRing<Config>& ring,
                                           volatile KeyTile* tile) {
  using Smem = AttentionBackwardWarpgroupsSmem<Config>;
  constexpr int kM = Config::kTileM, kN = Config::kTileN;
  constexpr int kD = Config::kWidth, kDv = Config::kValueWidth;
  const GradientVisits<Config> visits = {p.backward, tile};
  PipelineState<Config::kStages> state;
  bool first = true;  // then the keys come too
#pragma unroll 1
  for (QueryCursor at = visits.begin(); visits.there(at); at = visits.next(at)) {
    int block = at.index;
    unsigned full = ring.q_full(state.stage);
    mbarrier_wait(ring.q_empty(state.stage), state.phase ^ 1);
    if constexpr (HasMaskMod<Config>::kValue) {
      const int entry = visits.entry(at);
      ring.put_visit(state.stage, at.head, entry, visits.there(visits.next(at)));
      block = entry >> 1;
    }
    const BoxCoordinates<Config> queries(*tile, block * kM, tile->start_q, tile->rows);
    mbarrier_arrive_expect(full, Smem::kQ + (first ? Smem::kK : 0));
    if (first) {
      copy_panels<Config, kN, kD>(ring.k(), p.k, full, key_coordinates<Config>(tile),
                                  tile->kv_head);
    }
    copy_panels<Config, kM, kD>(ring.q(state.stage), p.q, full, queries, at.head);
    full = ring.dout_full(state.stage);
    mbarrier_wait(ring.dout_empty(state.stage), state.phase ^ 1);
    mbarrier_arrive_expect(full, Smem::kDout + (first ? Smem::kV : 0));
    if (first) {
      copy_panels<Config, kN, kDv>(ring.v(), p.v, full, key_coordinates<Config>(tile),
                                   tile->kv_head);
    }
    copy_panels<Config, kM, kDv>(ring.dout(state.stage), p.dout, full, queries, at.head);
    first = false;
    state.next();
  }
}

// The producer of lse2 and delta: one warp, because rows of packed sequences begin at no multiple
// of 16 bytes. A row behind the last one gets a weight of 0 and no delta.
template <class Config>
__device__ __forceinline__ void copy_row_values(const AttentionBackwardParams& p,
                                                const GradientRing<Config>& ring,
                                                volatile KeyTile* tile) {
  constexpr int kM = Config::kTileM, kEach = kM / 32;
  constexpr bool kListed = HasMaskMod<Config>::kValue;
  const GradientVisits<Config> visits = {p, tile};
  const int lane = threadIdx.x % 32;
  PipelineState<Config::kStages> state;
  QueryCursor at = visits.begin();
  bool more = visits.there(at);
#pragma unroll 1
  while (more) {
    if constexpr (kListed) {
      // Nobody takes the visit away before the barrier below is arrived at.
      mbarrier_wait(ring.q_full(state.stage), state.phase);
      at = ring.visit_cursor(state.stage), more = ring.more_visits(state.stage);
    }
    const int row = at.index * kM + lane, rows = tile->rows;
    const long long first =
        static_cast<long long>(at.head) * p.rows + row +
        (Config::kPacked ? tile->start_q : static_cast<long long>(tile->sequence) * p.seq_q);
    float lse2[kEach], delta[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const bool inside = row + 32 * i < rows;
      lse2[i] = inside ? load_element(static_cast<const float*>(p.lse2) + first + 32 * i)
                       : -minus_infinity();
      delta[i] = inside ? load_element(static_cast<const float*>(p.delta) + first + 32 * i) : 0.0f;
    }
    mbarrier_wait(ring.dout_empty(state.stage), state.phase ^ 1);
    const unsigned to = ring.rows(state.stage) + 4 * lane;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      store_shared(to + 128 * i, bit_cast<unsigned>(lse2[i]));
      store_shared(to + 4 * kM + 128 * i, bit_cast<unsigned>(delta[i]));
    }
    mbarrier_arrive(ring.dout_full(state.stage));
    if constexpr (!kListed) at = visits.next(at), more = visits.there(at);
    state.next();
  }
}

}  // namespace lathe
