// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Scalar functions: ex2, rcp, sigmoid, silu, gelu, minimum, maximum; ceil_div of whole numbers.
//
//   const long long i = 256LL * blockIdx.x + threadIdx.x;
//   if (i / 256 >= lathe::ceil_div(p.N, 256) || i >= p.N) return;
//   p.y[i] = lathe::silu(p.x[i]) + lathe::gelu(p.x[i]) + lathe::ex2(p.x[i]);
#pragma once

#include "common/math.cuh"

namespace lathe {

// x Phi(x), by the error function.
__device__ __forceinline__ float gelu(float x) {
  return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
}

// Of whole numbers of any types, of which none is negative.
template <class A, class B>
__host__ __device__ constexpr auto ceil_div(A a, B b) -> decltype(a + b) {
  return (a + b - 1) / b;
}

}  // namespace lathe
