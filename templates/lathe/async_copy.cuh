// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Copies from global to shared memory that run beside the computation (sm_80).
//
//   __shared__ float4 shared[64];
//   const long long i = 64LL * blockIdx.x + threadIdx.x;  // of 16 bytes; N is a multiple of 4
//   lathe::copy_async(lathe::shared_address(shared + threadIdx.x), p.x + 4 * i, 4 * i < p.N);
//   lathe::copy_async_commit();
//   lathe::copy_async_wait<0>();  // this thread's own copies
//   __syncthreads();              // everybody's
//   if (4 * i < p.N) reinterpret_cast<float4*>(p.y)[i] = shared[threadIdx.x ^ 1];
//
// What is not wanted (the last argument) is zeros.
#pragma once

#include "common/async_copy.cuh"
#include "common/mma.cuh"
