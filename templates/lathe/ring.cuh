// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A ring of stages in shared memory, between threads that fill them and threads that read them
// (sm_90). Each stage has a barrier `full`, which counts arrivals and bytes, and a barrier `empty`,
// which counts readers. A state goes around the ring on each side, and from tile to tile.
//
//   // x.map = { box = 128 }
//   using Ring = lathe::Ring<3, 128 * sizeof(float)>;
//   extern __shared__ __align__(128) float shared[];  // Ring::kBytes
//   const Ring ring{lathe::shared_address(shared)};
//   if (threadIdx.x == 0) ring.init(1, 4);            // one thread fills, four warps read
//   __syncthreads();
//   typename Ring::State state;
//   const int steps = static_cast<int>((p.N + 127) / 128);
//   if (threadIdx.x == 128) {
//     for (int step = 0; step < steps; ++step, state.next()) {
//       ring.acquire(state), ring.expect(state, 128 * sizeof(float));
//       lathe::copy_box(ring.stage(state), p.x_map, ring.full(state), 128 * step);
//     }
//   } else if (threadIdx.x < 128) {
//     float sum = 0.0f;
//     for (int step = 0; step < steps; ++step, state.next()) {
//       ring.wait(state);
//       sum += shared[128 * state.stage + threadIdx.x];
//       ring.release(state);
//     }
//     p.y[threadIdx.x] = sum;
//   }
#pragma once

#include "common/mbarrier.cuh"
#include "common/mma.cuh"

namespace lathe {

template <int kStages, int kStageBytes>
struct Ring {
  using State = PipelineState<kStages>;
  static constexpr int kBytes = kStages * (kStageBytes + 16);
  static_assert(kStageBytes % 16 == 0, "barriers lie behind the stages");

  unsigned begin;  // of shared memory; a multiple of 1024 where stages have a swizzle

  __device__ __forceinline__ unsigned stage(const State& at) const {
    return begin + at.stage * kStageBytes;
  }
  __device__ __forceinline__ unsigned full(const State& at) const {
    return begin + kStages * kStageBytes + 8 * at.stage;
  }
  __device__ __forceinline__ unsigned empty(const State& at) const {
    return full(at) + 8 * kStages;
  }

  // By one thread; a barrier of the block follows, or of the cluster if its blocks share stages.
  __device__ __forceinline__ void init(unsigned filling, unsigned reading) const {
    State at;
    for (int i = 0; i < kStages; ++i, at.next()) {
      mbarrier_init(full(at), filling), mbarrier_init(empty(at), reading);
    }
    fence_mbarrier_init();
  }
  // Waits until all have read what was in the stage.
  __device__ __forceinline__ void acquire(const State& at) const {
    mbarrier_wait(empty(at), at.phase ^ 1);
  }
  // Tells of bytes that copies will bring, and arrives; the copies follow.
  __device__ __forceinline__ void expect(const State& at, unsigned bytes) const {
    mbarrier_arrive_expect(full(at), bytes);
  }
  // Waits until the stage is full.
  __device__ __forceinline__ void wait(const State& at) const { mbarrier_wait(full(at), at.phase); }
  // One lane of the warp says for all that they have read the stage.
  __device__ __forceinline__ void release(const State& at) const {
    if (threadIdx.x % 32 == 0) mbarrier_arrive(empty(at));
  }
};

}  // namespace lathe
