// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda_forward_warpgroups: kda_forward.cuh's results, by warpgroups with roles (sm_90a).
#pragma once
#include "kda/sm90/walking.cuh"

namespace lathe {

template <class Config>
__device__ __forceinline__ void KdaWalking<Config>::run() const {
  KdaState<Walkers> state;
  if (tile.segment == 0) {
    this->load_initial_state(state);
  } else {  // from behind the segment before
    const long long at = this->summary(tile.segment - 1, in.value_dim);
    state.template load<true>(static_cast<const float*>(p.summaries) + at, this->warp_value(),
                              in.key_dim, in.value_dim);
  }
  walk(state);
  this->store_final_state(state);
}

template <class Config>
__device__ void kda_forward_warpgroups(const KdaForwardWarpgroupsParams& p) {
  extern __shared__ __align__(1024) float4 shared[];
  const KdaWalking<Config> walking(p.forward, blockIdx.x, shared_address(shared));
  if (threadIdx.x < KdaWalkers<Config>::kThreads) walking.clear_rest();
  if (walking.tile.idle()) return;
  kda_roles<Config>(p.maps, walking, [&] { walking.run(); });
}

}  // namespace lathe
