// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda_summary_warpgroups: what kda_summary.cuh leaves of the forward direction, by warpgroups with
// roles (sm_90a).
#pragma once
#include "kda/kda_summary.cuh"
#include "kda/sm90/walking.cuh"

namespace lathe {

template <class Config>
using KdaSummaryWarpgroupsSmem = KdaWarpgroupsSmem<KdaQuiet<Config>>;

template <class Config>
__device__ void kda_summary_warpgroups(const KdaSummaryWarpgroupsParams& params) {
  using Quiet = KdaQuiet<Config>;
  using Walkers = KdaWalkers<Quiet>;
  extern __shared__ __align__(1024) float4 shared[];
  const KdaSummaryParams& p = params.summary;
  constexpr int kValues = KdaScanSmem<Walkers>::kValues;
  KdaForwardParams walk = {};
  walk.in = p.in, walk.initial_state = p.initial_state;
  if constexpr (kPooled<Config>) walk.pool = p.pool;
  const KdaSummaryTile<Walkers> of(p, blockIdx.x, kValues);
  if (!of.wanted) return;
  const KdaWalking<Quiet> walking(walk, of.tile, shared_address(shared));
  kda_roles<Quiet>(params.maps, walking, [&] {
    KdaState<Walkers> state;
    of.begin(walking, state);
    PipelineState<KdaWarpgroupsSmem<Quiet>::kSlots> ring;
    walking.walk(state, ring);
    // Computed once more: no register holds it while the warps walk.
    KdaSummaryTile<Walkers>(p, fresh_block(), kValues).end(p, walking, state);
  });
}

}  // namespace lathe
