// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The two warps that keep the order of dq_order.cuh, so that consumers wait for barriers
// in shared memory alone: one waits for other blocks ahead of them, one passes the turn on behind
// them, while they are at the next scores.
#pragma once
#include "attention/sm90/dq_order.cuh"
#include "attention/sm90/dq_tiles.cuh"
#include "attention/sm90/gradient_ring.cuh"

namespace lathe {

template <class Config>
struct DqTurns {
  using Ring = GradientRing<Config>;
  static constexpr bool kListed = HasMaskMod<Config>::kValue;
  const AttentionBackwardWarpgroupsParams& p;
  const Ring ring;
  volatile KeyTile* const tile;

  // The words of the tiles of dq of the sequence, of head 0; the ticket is the first one of all.
  __device__ __forceinline__ long long* turns() const {
    return static_cast<long long*>(p.dq_order) + 1 + first_dq_tile_of_head<Config>(p, tile);
  }
  __device__ __forceinline__ long long* turn(long long* turns, const QueryCursor& at) const {
    return turns + static_cast<long long>(at.head) * p.dq_tiles + at.index;
  }
  __device__ __forceinline__ int number() const { return tile->first / Config::kTileN; }

  // Returns whether tile n of keys, which is ahead of this block's, has a block of queries in its
  // list.
  __device__ __forceinline__ bool lists(int n, int head, int block) const {
    const AttentionBackwardParams& b = p.backward;
    const long long list =
        query_list<Config>(b, tile) - (number() - n) + head * query_list_step<Config>(b);
    const int* entries = static_cast<const int*>(b.visits) + list * b.visits_stride;
    int low = 0, high = load_element(static_cast<const int*>(b.visit_counts) + list);
#pragma unroll 1
    while (low < high) {
      const int middle = (low + high) / 2, at = load_element(entries + middle) >> 1;
      if (at == block) return true;
      if (at < block) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return false;
  }
  // The last tile of keys ahead of the own one that visits a block of queries; -1: none does. By a
  // warp, whose lanes look at 32 tiles at a time.
  __device__ __forceinline__ int front_of(int head, int block) const {
    const int lane = threadIdx.x % 32;
#pragma unroll 1
    for (int from = number() - 1; from >= 0; from -= 32) {
      const int n = from - lane;
      const unsigned found = __ballot_sync(0xffffffffu, n >= 0 && lists(n, head, block));
      if (found != 0) return from + 1 - __ffs(static_cast<int>(found));
    }
    return -1;
  }
  // By a warp.
  __device__ __forceinline__ void take_listed() const {
    const GradientVisits<Config> visits = {p.backward, tile};
    PipelineState<Config::kStages> state;
#pragma unroll 1
    for (QueryCursor at = visits.begin(); visits.there(at); at = visits.next(at)) {
      const int block = visits.entry(at) >> 1, front = front_of(at.head, block);
      if (threadIdx.x % 32 == 0) {
        mbarrier_wait(ring.dq_seen(state.stage), state.phase ^ 1);
        if (front >= 0) wait_for_turn(turn(turns(), {at.head, block}), front + 1);
        store_shared_word(ring.dq_first(state.stage), front >= 0 ? 0 : 1);
        mbarrier_arrive(ring.dq_turn(state.stage));
      }
      __syncwarp();
      state.next();
    }
  }

  // By one thread. Whoever is the first to see a block of queries waits for nobody: the tile of
  // keys in front does not see it, and then no other one before it does.
  __device__ __forceinline__ void take() const {
    const GradientVisits<Config> visits = {p.backward, tile};
    const int tile_number = number();
    int front_begin = 0, front_end = 0;
    if (tile_number > 0) {
      const QueryBlocks front = query_blocks<Config::kTileM, Config::kTileN>(
          tile->window(), tile->rows, tile->first - Config::kTileN);
      front_begin = front.begin, front_end = front.end;
    }
    long long* const first = turns();
    PipelineState<Config::kStages> state;
#pragma unroll 1
    for (QueryCursor at = visits.begin(); visits.there(at); at = visits.next(at)) {
      mbarrier_wait(ring.dq_seen(state.stage), state.phase ^ 1);
      const bool behind = at.index >= front_begin && at.index < front_end;
      if (behind) wait_for_turn(turn(first, at), tile_number);
      store_shared_word(ring.dq_first(state.stage), behind ? 0 : 1);
      mbarrier_arrive(ring.dq_turn(state.stage));
      state.next();
    }
  }
  // By one thread.
  __device__ __forceinline__ void pass() const {
    const GradientVisits<Config> visits = {p.backward, tile};
    const int next = number() + 1;
    long long* const first = turns();
    PipelineState<Config::kStages> state;
#pragma unroll 1
    for (QueryCursor at = visits.begin(); visits.there(at); at = visits.next(at)) {
      mbarrier_wait(ring.dq_added(state.stage), state.phase);
      mbarrier_arrive(ring.dq_seen(state.stage));
      QueryCursor queries = at;
      if constexpr (kListed) queries.index = visits.entry(at) >> 1;
      pass_turn(turn(first, queries), next);
      state.next();
    }
  }
};

}  // namespace lathe
