// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The shared memory of the forward by warpgroups, and the thread that fills it: q of each tile, and
// the ring of keys and values. A warp beside it finds tiles of packed sequences.
#pragma once
#include "attention/sm90/packed_order.cuh"
#include "attention/sm90/tile_messages.cuh"
#include "attention/sm90/tile_order.cuh"
#include "attention/visits.cuh"
#include "common/box_coordinates.cuh"
#include "common/mbarrier.cuh"
#include "common/shared_memory.cuh"
#include "common/tma.cuh"
#include "params/attention_warpgroups.h"

namespace lathe {

// ConsumerConfig is the Config as consumers see it: they are the first threads of the block.
template <class Config>
struct ConsumerConfig : Config {
  static constexpr int kThreads = Config::kThreads - 128;
};
template <class Config>
using MessagesOf = TileMessages<ConsumerConfig<Config>::kThreads / 32>;
// The producer reads these too.
template <class Config>
using FoundTiles = TileMessages<ConsumerConfig<Config>::kThreads / 32 + 1>;

// [Q][kStages tiles of K][kStages tiles of V][barriers][what warps keep of their tile][with
// kPacked, messages of tiles][entries of the list of visits that the stages of K are of]
//
// A tile is whole panels of 64 columns. What is behind the last column arrives as zeros: it costs
// shared memory and no product.
template <class Config>
struct AttentionWarpgroupsSmem {
  static constexpr int kPanels = (Config::kWidth + 63) / 64;
  static constexpr int kValuePanels = (Config::kValueWidth + 63) / 64;
  static constexpr int kQ = kPanels * Config::kTileM * 128;
  static constexpr int kK = kPanels * Config::kTileN * 128;
  static constexpr int kV = kValuePanels * Config::kTileN * 128;
  static constexpr int kKeys = kQ, kValues = kKeys + Config::kStages * kK;
  static constexpr int kBarriers = kValues + Config::kStages * kV;
  static constexpr int kKept = kBarriers + 8 * (2 + 4 * Config::kStages);
  static constexpr int kMessages = kKept + 32 * (Config::kThreads / 32 - 4);
  static constexpr int kEntries = kMessages + (Config::kPacked ? MessagesOf<Config>::kBytes : 0);
  static constexpr int kBytes = kEntries + (Config::kListed ? 4 * Config::kStages : 0);
};

// The ring as addresses. A `full` barrier tells that bytes have landed, an `empty` one that all
// warps have read them.
template <class Config>
struct AttentionRing {
  using Smem = AttentionWarpgroupsSmem<Config>;
  static constexpr int kStages = Config::kStages;
  unsigned shared;

  __device__ __forceinline__ unsigned q() const { return shared; }
  __device__ __forceinline__ unsigned k(unsigned stage) const {
    return shared + Smem::kKeys + stage * Smem::kK;
  }
  __device__ __forceinline__ unsigned v(unsigned stage) const {
    return shared + Smem::kValues + stage * Smem::kV;
  }
  __device__ __forceinline__ unsigned barrier(unsigned index) const {
    return shared + Smem::kBarriers + 8 * index;
  }
  __device__ __forceinline__ unsigned kept(unsigned warp) const {
    return shared + Smem::kKept + 32 * warp;
  }
  __device__ __forceinline__ unsigned messages() const { return shared + Smem::kMessages; }
  // The list's entry, with kListed: written before the keys are asked for, and read like them.
  __device__ __forceinline__ unsigned entry(unsigned stage) const {
    return shared + Smem::kEntries + 4 * stage;
  }
  __device__ __forceinline__ unsigned q_full() const { return barrier(0); }
  __device__ __forceinline__ unsigned q_empty() const { return barrier(1); }
  __device__ __forceinline__ unsigned k_full(unsigned stage) const { return barrier(2 + stage); }
  __device__ __forceinline__ unsigned k_empty(unsigned stage) const {
    return barrier(2 + kStages + stage);
  }
  __device__ __forceinline__ unsigned v_full(unsigned stage) const {
    return barrier(2 + 2 * kStages + stage);
  }
  __device__ __forceinline__ unsigned v_empty(unsigned stage) const {
    return barrier(2 + 3 * kStages + stage);
  }

  // By one thread, before anybody uses the ring.
  __device__ __forceinline__ void init() const {
    constexpr unsigned kWarps = ConsumerConfig<Config>::kThreads / 32;
    mbarrier_init(q_full(), 1);
    mbarrier_init(q_empty(), kWarps);
    for (unsigned stage = 0; stage < kStages; ++stage) {
      mbarrier_init(k_full(stage), 1);
      mbarrier_init(v_full(stage), 1);
      mbarrier_init(k_empty(stage), kWarps);
      mbarrier_init(v_empty(stage), kWarps);
    }
    fence_mbarrier_init();
  }
};

// Makes the rows of q's tile zeros that are nobody's: no copy writes them, and they are multiplied.
template <class Config>
__device__ __forceinline__ void clear_unused_rows(const AttentionForwardParams& p,
                                                  const AttentionRing<Config>& ring) {
  if constexpr (HasWholeGroups<Config>::kValue) {
    const int begin = used_rows<Config>(p.heads / p.kv_heads) * 32;  // words
    for (int panel = 0; panel < AttentionWarpgroupsSmem<Config>::kPanels; ++panel) {
      const unsigned at = ring.q() + panel * Config::kTileM * 128;
      for (int i = begin + threadIdx.x; i < Config::kTileM * 32; i += Config::kThreads) {
        store_shared_word(at + 4 * i, 0);
      }
    }
    fence_shared_writes();
  }
}

// With kPacked a warp of its own finds the tiles, a tile or two ahead, and tells the others.
template <class Config>
__device__ __forceinline__ void find_tiles(const AttentionWarpgroupsParams& p,
                                           const FoundTiles<Config>& messages) {
  PackedOrder<Config> order(p.forward, p.order);
  typename FoundTiles<Config>::State state;
  QueryTile tile = {};
  bool there = true;
#pragma unroll 1
  for (unsigned turn = 0; there; ++turn) {
    there = order.find(turn, tile);
    if (threadIdx.x % 32 == 0) messages.send(there, tile, state);
    state.next();
  }
}

// The producer: one thread.
template <class Config>
struct AttentionProducer {
  using Smem = AttentionWarpgroupsSmem<Config>;
  static constexpr int kTileM = Config::kTileM, kTileN = Config::kTileN;

  const AttentionWarpgroupsParams& p;
  const AttentionRing<Config>& ring;
  const FoundTiles<Config> messages;
  PipelineState<1> q_state;
  PipelineState<Config::kStages> k_state, v_state;

  // A visit is a block of keys, or with kListed an entry of the list.
  static __device__ __forceinline__ int visit(const Visits<Config>& visits, int cursor) {
    return Config::kListed ? visits.entry(cursor) : cursor;
  }
  static __device__ __forceinline__ int key(int visit) {
    return (Config::kListed ? visit >> 1 : visit) * kTileN;
  }

  __device__ __forceinline__ void copy_q(const QueryTile& tile) {
    const int group = Config::kPackGqa ? tile.group : 1;
    const BoxCoordinates<Config> at(tile, tile.first / group, tile.start_q, tile.rows);
    mbarrier_wait(ring.q_empty(), q_state.phase ^ 1);
    mbarrier_arrive_expect(ring.q_full(), Smem::kPanels * used_rows<Config>(group) * 128);
#pragma unroll
    for (int panel = 0; panel < Smem::kPanels; ++panel) {
      const unsigned to = ring.q() + panel * kTileM * 128;
      if constexpr (Config::kPackGqa) {
        copy_box(to, p.q, ring.q_full(), panel * 64, 0, at.row, tile.head, at.sequence);
      } else {
        copy_box(to, p.q, ring.q_full(), panel * 64, at.row, tile.head, at.sequence);
      }
    }
    q_state.next();
  }
  template <int kPanels>
  __device__ __forceinline__ void copy_keys(const TensorMap& map, const QueryTile& tile, int visit,
                                            unsigned to, unsigned full) const {
    const BoxCoordinates<Config> at(tile, key(visit), tile.start_k, tile.keys);
    mbarrier_arrive_expect(full, kPanels * kTileN * 128);
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
      copy_box(to + panel * kTileN * 128, map, full, panel * 64, at.row, tile.kv_head, at.sequence);
    }
  }
  __device__ __forceinline__ void copy_k(const QueryTile& tile, int visit) {
    const unsigned stage = k_state.stage;
    mbarrier_wait(ring.k_empty(stage), k_state.phase ^ 1);
    if constexpr (Config::kListed) store_shared_word(ring.entry(stage), visit);
    copy_keys<Smem::kPanels>(p.k, tile, visit, ring.k(stage), ring.k_full(stage));
    k_state.next();
  }
  __device__ __forceinline__ void copy_v(const QueryTile& tile, int visit) {
    const unsigned stage = v_state.stage;
    mbarrier_wait(ring.v_empty(stage), v_state.phase ^ 1);
    copy_keys<Smem::kValuePanels>(p.v, tile, visit, ring.v(stage), ring.v_full(stage));
    v_state.next();
  }

  // Keys of each visit of a tile, and values of the visit before it.
  __device__ __forceinline__ void copy_tile(const QueryTile& tile) {
    const Visits<Config> visits(p.forward, tile);
    if (visits.begin >= visits.end) return;
    int cursor = visits.end - 1, last = visit(visits, cursor);
    copy_k(tile, last);
    copy_q(tile);
#pragma unroll 1
    while (--cursor >= visits.begin) {
      const int next = visit(visits, cursor);
      copy_k(tile, next);
      copy_v(tile, last);
      last = next;
    }
    copy_v(tile, last);
  }
  __device__ __forceinline__ void run() {
    if constexpr (Config::kPacked) {
      const int group = p.forward.heads / p.forward.kv_heads;
      typename FoundTiles<Config>::State state;
#pragma unroll 1
      for (; messages.wait(state); state.next()) {
        const QueryTile tile = messages.read(state, group);
        mbarrier_arrive(messages.empty(state.stage));
        copy_tile(tile);
      }
      return;
    }
    const TileOrder<Config> order = {p.forward, p.order};
    for (unsigned turn = 0; turn < order.turns(); ++turn) {
      QueryTile tile;
      if (order.tile(turn, tile)) copy_tile(tile);
    }
  }
};

}  // namespace lathe
