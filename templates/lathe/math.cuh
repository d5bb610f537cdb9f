// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Scalar functions: ex2, rcp, sigmoid, silu, ceil_div, minimum, maximum; gelu.
//
//   const float y = lathe::silu(x), z = lathe::gelu(x);
#pragma once

#include "common/math.cuh"

namespace lathe {

// x Phi(x), by the error function.
__device__ __forceinline__ float gelu(float x) {
  return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
}

}  // namespace lathe
