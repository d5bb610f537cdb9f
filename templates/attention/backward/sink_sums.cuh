// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// dsinks in two steps, each in a fixed order: a block of the kernel that prepares the backward sums
// over its rows, and a warp of the one that finishes it sums over the blocks of a head. `Params` of
// attention and of sparse attention have the same names.
#pragma once
#include "common/types.cuh"

namespace lathe {

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  }
  return value;
}

// Stores the sum over the block of each thread's `dsink` as part `part`. `sums`: shared memory, a
// float for each warp.
template <class Config>
__device__ __forceinline__ void store_sink_part(float dsink, float* sums, void* parts,
                                                long long part) {
  dsink = warp_sum(dsink);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = dsink;
  __syncthreads();  // the sum of every warp is there
  if (threadIdx.x == 0) {
    float sum = 0.0f;
    for (int warp = 0; warp < Config::kThreads / 32; ++warp) sum += sums[warp];
    store_element(static_cast<float*>(parts) + part, sum);
  }
}

// Stores dsinks of a head, by a warp.
template <class Params>
__device__ __forceinline__ void sum_sinks(const Params& p, int head) {
  if (head >= p.heads) return;
  const int lane = threadIdx.x % 32;
  float sum = 0.0f;
  for (int tile = lane; tile < p.tiles; tile += 32) {
    sum += load_element(static_cast<const float*>(p.dsinks_parts) +
                        static_cast<long long>(tile) * p.heads + head);
  }
  sum = warp_sum(sum);
  if (lane == 0) store_element(static_cast<float*>(p.dsinks) + head, sum);
}

}  // namespace lathe
