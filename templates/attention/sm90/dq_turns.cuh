// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The two warps that keep the order of dq_order.cuh, so that those which multiply wait for barriers
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
  const AttentionBackwardWarpgroupsParams& p;
  const Ring ring;
  volatile KeyTile* const tile;

  // The words of the tiles of dq of the sequence, of head 0; the ticket is the first one of all.
  __device__ __forceinline__ long long* turns() const {
    return static_cast<long long*>(p.dq_order) + 1 + first_dq_tile_of_head<Config>(p, tile);
  }
  __device__ __forceinline__ long long* turn(long long* turns, const QueryPlace& at) const {
    return turns + static_cast<long long>(at.head) * p.dq_tiles + at.cursor;
  }
  __device__ __forceinline__ int number() const { return tile->first / Config::kTileN; }

  // By one thread. Whoever is the first to see a block of queries waits for nobody: the tile of
  // keys in front does not see it, and then no other one before it does.
  __device__ __forceinline__ void take() const {
    const GradientVisits<Config> visits = {p.backward, tile};
    const int own = number();
    int front_begin = 0, front_end = 0;
    if (own > 0) {
      const QueryBlocks front = query_blocks<Config::kTileM, Config::kTileN>(
          tile->window(), tile->rows, tile->first - Config::kTileN);
      front_begin = front.begin, front_end = front.end;
    }
    long long* const first = turns();
    RingPlace<Config::kStages> place;
#pragma unroll 1
    for (QueryPlace at = visits.begin(); visits.there(at); at = visits.next(at)) {
      mbarrier_wait(ring.dq_seen(place.stage), place.parity ^ 1);
      const bool behind = at.cursor >= front_begin && at.cursor < front_end;
      if (behind) wait_for_turn(turn(first, at), own);
      store_shared_word(ring.dq_first(place.stage), behind ? 0 : 1);
      mbarrier_arrive(ring.dq_turn(place.stage));
      place.next();
    }
  }
  // By one thread.
  __device__ __forceinline__ void pass() const {
    const GradientVisits<Config> visits = {p.backward, tile};
    const int next = number() + 1;
    long long* const first = turns();
    RingPlace<Config::kStages> place;
#pragma unroll 1
    for (QueryPlace at = visits.begin(); visits.there(at); at = visits.next(at)) {
      mbarrier_wait(ring.dq_added(place.stage), place.parity);
      mbarrier_arrive(ring.dq_seen(place.stage));
      pass_turn(turn(first, at), next);
      place.next();
    }
  }
};

}  // namespace lathe
