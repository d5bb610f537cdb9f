// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Barriers in shared memory that count arrivals and bytes (sm_90), the state of a ring of stages,
// and named barriers of some warps of a block.
//
//   __shared__ unsigned long long barrier;
//   __shared__ float value[32];
//   const unsigned full = lathe::shared_address(&barrier);
//   if (threadIdx.x == 0) lathe::mbarrier_init(full, 32), lathe::fence_mbarrier_init();
//   __syncthreads();
//   if (threadIdx.x < 32) {  // one warp gives
//     value[threadIdx.x] = p.x[threadIdx.x];
//     lathe::mbarrier_arrive(full);
//   } else {                 // the other one takes, when 32 threads have arrived
//     lathe::mbarrier_wait(full, 0);
//     p.y[threadIdx.x - 32] = value[63 - threadIdx.x];
//   }
//
// lathe/tma.cuh has the copies whose bytes a barrier counts, lathe/ring.cuh rings of stages.
#pragma once

#include "common/mbarrier.cuh"
#include "common/mma.cuh"
