// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Copies from global to shared memory that run beside the computation (sm_80).
//
//   lathe::copy_async(lathe::shared_address(shared + 4 * i), p.x + 4 * i, i < count);  // 16 bytes
//   lathe::copy_async_commit();
//   lathe::copy_async_wait<0>();   // this thread's own copies
//   __syncthreads();               // everybody's
#pragma once

#include "common/async_copy.cuh"
#include "common/mma.cuh"
