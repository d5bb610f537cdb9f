// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The blocks of a cluster (sm_90): which one this is, and a barrier of all their threads.
//
//   // cluster = 2, and x.map = { box = "64 1" } of x [T, 64], with lathe/tma.cuh
//   __shared__ __align__(128) float row[64];
//   __shared__ unsigned long long barrier;
//   const unsigned to = lathe::shared_address(row), full = lathe::shared_address(&barrier);
//   if (threadIdx.x == 0) {
//     lathe::mbarrier_init(full, 1), lathe::fence_mbarrier_init();
//     lathe::mbarrier_arrive_expect(full, sizeof(row));
//   }
//   lathe::cluster_sync();  // the barriers of both blocks are there before a copy tells them
//   const int t = blockIdx.x / 2;
//   if (lathe::cluster_rank() == 0 && threadIdx.x == 0) {
//     lathe::copy_box_to_blocks(0b11, to, p.x_map, full, 0, t);  // one read of L2 for both
//   }
//   lathe::mbarrier_wait(full, 0);
//   if (t < p.T) p.y[2 * 64 * t + 64 * lathe::cluster_rank() + threadIdx.x] = row[threadIdx.x];
//   lathe::cluster_sync();  // no block ends while another one may still write into it
#pragma once

namespace lathe {

__device__ __forceinline__ unsigned cluster_rank() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// What threads of the cluster wrote before it, all of them see behind it.
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

}  // namespace lathe
