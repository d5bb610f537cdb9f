// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda_forward_cluster: kda_forward.cuh's results of sequences in segments, in one launch (sm_90a).
//
// The thread blocks of a cluster have the segments of one head. With M and E of kda_summary.cuh a
// segment makes M S + E of the state S before it.
//
//   1. Each block walks through its segment from 0 and from the unit matrix at once, which leaves E
//      and M. The first segment's walk gives the outputs at once, and the state behind it; that of
//      the last one is not needed.
//   2. Some blocks make the state before each segment of E and M (kda/sm90/cluster_chain.cuh).
//   3. All blocks but the first one walk through their segments once more, from these states, and
//      give the outputs.
//
// The warps that prepare records do not wait in between: the records of the second walk are ready
// when its state is there. Nothing but E, M and states leaves the multiprocessor.
#pragma once
#include "kda/kda_summary.cuh"
#include "kda/sm90/cluster_chain.cuh"
#include "kda/sm90/walking_both.cuh"

namespace lathe {

// The second walk: its records come behind those of the first one.
template <class Config>
struct KdaSecond : Config {
  static constexpr bool kFollows = true;
};

// [as of a walk][the chain's][its two barriers]
template <class Config>
struct KdaClusterSmem : KdaWarpgroupsSmem<Config> {
  using Walk = KdaWarpgroupsSmem<Config>;
  using First = KdaWarpgroupsSmem<KdaBoth<Config>>;
  static constexpr int kChain = (Walk::kBytes + 15) / 16 * 16;
  static constexpr int kBarriers = kChain + KdaClusterChain<Config>::kBytes;
  static constexpr int kBytes = kBarriers + 16;
  static_assert(First::kRecord == Walk::kRecord && First::kSmall == Walk::kSmall &&
                    First::kTriangles == Walk::kTriangles,
                "both walks have one ring");
};

// Where a block stands: a cluster has the segments of a head.
template <class Config>
__device__ __forceinline__ KdaScanTile kda_cluster_tile(const KdaInputs& in, unsigned block) {
  const unsigned run = block / in.segments, sequence = run / in.value_heads;
  const int segment = static_cast<int>(block - run * in.segments);
  KdaScanTile tile = kda_scan_tile_of<Config>(in, static_cast<int>(sequence), segment,
                                              static_cast<int>(run - sequence * in.value_heads), 0);
  const int tokens = tile.exists ? kda_tokens_of<Config>(in, tile.sequence).count : 0;
  const KdaClusterCut cut(tokens, in.segments);
  tile.first = 16 * cut.begin(segment);
  tile.last = segment >= cut.used - 1;
  tile.count = minimum(tokens, 16 * cut.begin(segment + 1));
  return tile;
}

template <class Config>
struct KdaCluster {
  using Both = KdaBoth<Config>;
  using Second = KdaSecond<Config>;
  using Smem = KdaClusterSmem<Config>;
  using Chain = KdaClusterChain<Config>;
  using Roles = KdaRoles<Config>;
  using First = KdaRoles<Both>;
  static constexpr int kWalkers = 32 * Roles::kWalking;  // threads
  // Behind this barrier the walkers have given back what the first walk alone needs.
  static constexpr int kHandedOver = 2;
  // The warpgroup that prepares for the second walk alone has these until then.
  static constexpr int kIdleRegisters = 24;
  static_assert(2 * First::kWalkingRegisters + First::kPreparingRegisters + kIdleRegisters == 512);

  const KdaForwardWarpgroupsParams& p;
  const unsigned shared;

  __device__ __forceinline__ KdaScanTile tile() const {
    return kda_cluster_tile<Config>(p.forward.in, fresh_block());
  }
  __device__ __forceinline__ Chain chain(const KdaScanTile& of) const {
    return Chain(p, of, shared + Smem::kChain, shared + Smem::kBarriers);
  }
  // Whether a segment is walked for E and M, and the blocks of 16 tokens of that walk.
  static __device__ __forceinline__ bool is_summarized(const KdaScanTile& tile) {
    return tile.segment > 0 && !tile.last;
  }
  static __device__ __forceinline__ int first_blocks(const KdaScanTile& tile) {
    return is_summarized(tile) ? ceil_div(tile.count - tile.first, 16) : 0;
  }
  __device__ __forceinline__ void begin(const KdaScanTile& of) const;
  __device__ __forceinline__ void summarize(const KdaScanTile& of,
                                            PipelineState<Smem::kSlots>& ring) const;
  __device__ __forceinline__ void walk() const;
  __device__ __forceinline__ void prepare() const;
  __device__ __forceinline__ void run() const;
};

// All barriers are there, of all blocks of the cluster, before anybody uses one.
template <class Config>
__device__ __forceinline__ void KdaCluster<Config>::begin(const KdaScanTile& of) const {
  if (threadIdx.x / 32 == Roles::kWalking) {
    if (threadIdx.x % 32 == 0) {
      if (of.first < of.count) {  // else: no maps
        prefetch_tensor_map(p.maps.k);
        prefetch_tensor_map(p.maps.v);
        prefetch_tensor_map(p.maps.q);
        if (Smem::kCopiedGate) prefetch_tensor_map(p.maps.g);
      }
      chain(of).init();
    }
    KdaRecord<Config>::init(shared);
  }
  cluster_sync();
}

// E and M, to memory, where the chain finds them.
template <class Config>
__device__ __forceinline__ void KdaCluster<Config>::summarize(
    const KdaScanTile& of, PipelineState<Smem::kSlots>& ring) const {
  using Walking = KdaWalkingBoth<Both>;
  using Walkers = typename Walking::Walkers;
  KdaState<Walkers> ends, map;
  const Walking walking(p.forward, of, shared);
  ends.clear(), map.identity(16 * walking.warp);
  walking.walk(ends, map, ring);
  const KdaScanTile again = tile();
  const Chain given = chain(again);
  given.give_end(ends);
  given.give_map(map);
  given.tell();
}

// The warps that walk do this.
template <class Config>
__device__ __forceinline__ void KdaCluster<Config>::walk() const {
  setmaxnreg_inc<First::kWalkingRegisters>();
  PipelineState<Smem::kSlots> ring;
  const KdaScanTile of = tile();
  if (is_summarized(of)) summarize(of, ring);
  if (of.segment > 0) chain(tile()).run();
  setmaxnreg_dec<Roles::kWalkingRegisters>();
  named_barrier_arrive<kHandedOver, kWalkers + 128>();
  const KdaScanTile second = tile();
  if (second.idle()) return;
  const KdaWalking<Config> walking(p.forward, second, shared);
  KdaState<KdaWalkers<Config>> state;
  if (second.segment > 0) {
    chain(second).take(state);
  } else {
    walking.load_initial_state(state);
  }
  walking.walk(state, ring);
  const KdaScanTile behind = tile();
  if (behind.segment == 0 && !behind.last) {
    const Chain given = chain(behind);
    given.give_end(state);
    given.tell();
  }
  KdaWalking<Config>(p.forward, behind, shared).store_final_state(state);
}

// The warps that prepare do this: four of them for the first walk, and all for the second one. The
// place is found anew: no register holds it where there are few.
template <class Config>
__device__ __forceinline__ void KdaCluster<Config>::prepare() const {
  if (threadIdx.x < kWalkers + 128) {
    setmaxnreg_dec<First::kPreparingRegisters>();
    const KdaScanTile of = tile();
    if (is_summarized(of)) {
      const typename KdaPreparing<Both>::Scan scan(p.forward.in, of, shared);
      KdaPreparing<Both>(p.maps, scan, shared).run();
    }
    if (Roles::kPreparingRegisters < First::kPreparingRegisters) {
      setmaxnreg_dec<Roles::kPreparingRegisters>();
    }
  } else {
    setmaxnreg_dec<kIdleRegisters>();
    named_barrier_sync<kHandedOver, kWalkers + 128>();  // or it takes what the walkers wait for
    setmaxnreg_inc<Roles::kPreparingRegisters>();
  }
  const KdaScanTile of = tile();
  const typename KdaPreparing<Second>::Scan scan(p.forward.in, of, shared);
  KdaPreparing<Second>(p.maps, scan, shared, first_blocks(of)).run();
}

template <class Config>
__device__ __forceinline__ void KdaCluster<Config>::run() const {
  {
    const KdaWalking<Config> walking(p.forward, tile(), shared);
    const bool walks = threadIdx.x < kWalkers;
    if (walks) walking.clear_rest();
    // A whole cluster returns as one.
    if (!walking.tile.exists) return;
    if (walking.is_padding()) {
      if (walks) walking.clear_padding();
      return;
    }
    begin(walking.tile);
  }
  if (threadIdx.x < kWalkers) {
    walk();
  } else {
    prepare();
  }
}

// Inlined, which the compiler does not do by itself with one as large as a softplus makes it:
// across a call products are not in flight.
template <class Config>
__device__ __forceinline__ void kda_forward_cluster(const KdaForwardWarpgroupsParams& p) {
  extern __shared__ __align__(1024) float4 shared[];
  KdaCluster<Config>{p, shared_address(shared)}.run();
}

}  // namespace lathe
