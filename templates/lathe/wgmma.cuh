// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The matrix instructions of a warpgroup (sm_90a): tiles in shared memory with the 128-byte
// swizzle.
//
//   const auto a = lathe::wgmma_columns(address_a), b = lathe::wgmma_columns(address_b);
//   lathe::wgmma_fence();
//   for (int k = 0; k < 4; ++k)                        // steps of 16 columns
//     lathe::Wgmma<128, false, bf16>::run(d, a.at(32 * k), b.at(32 * k), 1);
//   lathe::wgmma_commit(), lathe::wgmma_wait<0>();
//   lathe::wgmma_fence_operands(d);
#pragma once

#include "common/wgmma.cuh"
