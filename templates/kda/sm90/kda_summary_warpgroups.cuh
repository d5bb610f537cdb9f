// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda_summary_warpgroups: what kda_summary.cuh leaves, by warpgroups with roles (sm_90a).
#pragma once
#include "kda/kda_summary.cuh"
#include "kda/sm90/kda_backward_scan_warpgroups.cuh"
#include "kda/sm90/walking.cuh"

namespace lathe {

// Where both directions are walked, their records have the same parts.
template <class Config>
struct KdaSummaryWarpgroupsSmem : KdaWarpgroupsSmem<KdaQuiet<Config>> {
  static_assert(!Config::kGrads || KdaWarpgroupsSmem<KdaQuiet<Config>>::kBytes ==
                                       KdaBackSmem<KdaQuiet<Config>>::kBytes);
};

template <class Config>
__device__ __forceinline__ void summarize_forward_by_roles(const KdaSummaryWarpgroupsParams& params,
                                                           unsigned shared) {
  using Quiet = KdaQuiet<Config>;
  using Walkers = KdaWalkers<Quiet>;
  const KdaSummaryParams& p = params.summary;
  constexpr int kValues = KdaScanSmem<Walkers>::kValues;
  KdaForwardParams walk = {};
  walk.in = p.in, walk.initial_state = p.initial_state;
  if constexpr (kPooled<Config>) walk.pool = p.pool;
  const KdaSummaryTile<Walkers> of(p, blockIdx.x, kValues);
  if (!of.wanted) return;
  const KdaWalking<Quiet> walking(walk, of.tile, shared);
  // Computed once more where nothing holds it: a role has no registers for it.
  const auto again = [&] { return KdaSummaryTile<Walkers>(p, fresh_block(), kValues); };
  const auto place = [&] {
    if constexpr (KdaRoles<Quiet>::kTight) {
      return KdaWalking<Quiet>(walk, again().tile, shared);
    } else {
      return walking;
    }
  };
  kda_roles<Quiet>(params.maps, walking, place, [&] {
    const KdaWalking<Quiet> here = place();
    KdaState<Walkers> state;
    of.begin(here, state);
    PipelineState<KdaWarpgroupsSmem<Quiet>::kSlots> ring;
    here.walk(state, ring);
    again().end(p, here, state);
  });
}

template <class Config>
__device__ __forceinline__ void summarize_back_by_roles(const KdaSummaryWarpgroupsParams& params,
                                                        unsigned shared) {
  using Quiet = KdaQuiet<Config>;
  using Back = KdaBack<Quiet>;
  using Walking = KdaWalkingBack<Quiet, false>;
  const KdaSummaryParams& p = params.summary;
  KdaBackwardScanParams walk = {};
  walk.in = p.in, walk.dht = p.dht;
  const Walking walking(walk, blockIdx.x - p.forward_blocks + p.back_skipped, shared);
  const KdaScanTile& tile = walking.tile;
  if (tile.idle() || !(tile.segment > 0 || tile.sequence < p.carried)) return;
  kda_roles<Back>(
      params.maps, walking, [&]() -> const auto& { return walking; },
      [&] {
        KdaState<KdaWalkers<Back>> state;
        if (tile.last && tile.sequence < p.open) {
          walking.load_final_grad(state);
        } else {
          state.clear();
        }
        walking.walk(state);
        const Walking same(walk, fresh_block() - p.forward_blocks + p.back_skipped, shared);
        state.template store<true>(
            static_cast<float*>(p.grad_ends) + same.summary(same.tile.segment, p.in.value_dim),
            same.warp_value(), p.in.key_dim, p.in.value_dim);
      });
}

template <class Config>
__device__ void kda_summary_warpgroups(const KdaSummaryWarpgroupsParams& params) {
  extern __shared__ __align__(1024) float4 shared[];
  if constexpr (Config::kGrads) {
    if (static_cast<int>(blockIdx.x) >= params.summary.forward_blocks) {
      summarize_back_by_roles<Config>(params, shared_address(shared));
      return;
    }
  }
  summarize_forward_by_roles<Config>(params, shared_address(shared));
}

}  // namespace lathe
