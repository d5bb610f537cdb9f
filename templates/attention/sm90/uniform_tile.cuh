// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Descriptors of wgmma's operands that a warp's threads share.
#pragma once
#include "attention/tile.cuh"
#include "common/wgmma.cuh"

namespace lathe {

// Descriptors are in registers that a warp shares, and the compiler does not see that what they are
// computed from is the same in all threads: it would move each descriptor there by itself. Callers
// make the shuffle before they wait for products, where its latency costs nobody anything.
__device__ __forceinline__ WgmmaTile warp_uniform(WgmmaTile tile) {
  return {static_cast<unsigned>(warp_uniform(static_cast<int>(tile.low)))};
}

}  // namespace lathe
