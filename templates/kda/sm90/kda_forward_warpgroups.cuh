// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda_forward_warpgroups: kda_forward.cuh's results, by warpgroups with roles (sm_90a).
#pragma once
#include "kda/sm90/walking.cuh"

namespace lathe {

template <class Config>
__device__ __forceinline__ void KdaWalking<Config>::run(KdaState<Walkers>& state) const {
  // The first rows have a long way through other warps: memory brings them before the state.
  if (tile.first < tile.count) mbarrier_wait(Record(shared, 0).landed(), 0);
  this->begin_state(state);
  PipelineState<Smem::kSlots> ring;
  if constexpr (kCheckpointed<Config>) {
    if (tile.first == 0) this->store_checkpoints(0, state);
    this->each_piece([&](const KdaScanTile& piece, int) {
      KdaWalking(p, piece, shared).walk(state, ring);
      this->store_checkpoints(piece.count, state);
    });
  } else {
    walk(state, ring);
  }
}

template <class Config>
__device__ void kda_forward_warpgroups(const KdaForwardWarpgroupsParams& p) {
  extern __shared__ __align__(1024) float4 shared[];
  const KdaWalking<Config> walking(p.forward, blockIdx.x, shared_address(shared));
  const bool walks = threadIdx.x < KdaWalkers<Config>::kThreads;
  if (walks) walking.clear_rest();
  if (walking.tile.idle()) return;
  if (walking.is_padding()) {
    if (walks) walking.clear_padding();
    return;
  }
  const auto place = [&] {
    if constexpr (KdaRoles<Config>::kTight) {
      return KdaWalking<Config>(p.forward, fresh_block(), shared_address(shared));
    } else {
      return walking;
    }
  };
  kda_roles<Config>(p.maps, walking, place, [&] {
    KdaState<KdaWalkers<Config>> state;
    place().run(state);
    place().store_final_state(state);
  });
}

}  // namespace lathe
