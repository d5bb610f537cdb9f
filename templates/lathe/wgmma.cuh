// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The matrix instructions of a warpgroup (sm_90a): tiles in shared memory with the 128-byte
// swizzle, as a tensor map writes them; and how registers go from one warpgroup to another.
//
//   // a.map and b.map = { box = "64 64", swizzle = 128 }, with lathe/tma.cuh
//   extern __shared__ __align__(1024) char shared[];  // 2 * 8192 bytes, and a barrier
//   const unsigned a = lathe::shared_address(shared), b = a + 8192, full = b + 8192;
//   if (threadIdx.x == 0) lathe::mbarrier_init(full, 1), lathe::fence_mbarrier_init();
//   __syncthreads();
//   if (threadIdx.x == 0) {
//     lathe::mbarrier_arrive_expect(full, 2 * 8192);
//     lathe::copy_box(a, p.a_map, full, 0, 0), lathe::copy_box(b, p.b_map, full, 0, 0);
//   }
//   lathe::mbarrier_wait(full, 0);
//   float d[32] = {};  // 64 x 64 of A B^T, by four warps
//   lathe::wgmma_fence_operands(d), lathe::wgmma_fence();  // the zeros are written before
//   for (int k = 0; k < 4; ++k) {  // steps of 16 columns
//     lathe::Wgmma<64, false, lathe::bf16>::run(d, lathe::wgmma_columns(a).at(32 * k),
//                                               lathe::wgmma_columns(b).at(32 * k), 1);
//   }
//   lathe::wgmma_commit(), lathe::wgmma_wait<0>();
//   lathe::wgmma_fence_operands(d);
//   for (int i = 0; i < 32; ++i) {
//     const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + i / 2 % 2 * 8;
//     p.c[row * 64 + i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2] = d[i];
//   }
#pragma once

#include "common/registers.cuh"
#include "common/wgmma.cuh"
