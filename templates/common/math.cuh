// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Scalar functions. Products and sums that must round alike in several kernels are explicit, so
// that no compiler contracts them here and not there.
#pragma once

namespace lathe {

constexpr float kLog2E = 1.4426950408889634f;

__host__ __device__ constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
__device__ __forceinline__ int minimum(int a, int b) { return a < b ? a : b; }
__device__ __forceinline__ int maximum(int a, int b) { return a > b ? a : b; }

// 2^x, two units in the last place.
__device__ __forceinline__ float ex2(float x) {
  float result;
  asm("ex2.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
// The same, 0 instead of results below the smallest normal number: three instructions less.
__device__ __forceinline__ float ex2_normal(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
__device__ __forceinline__ float rcp(float x) {
  float result;
  asm("rcp.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
// The same with results below the smallest normal number 0.
__device__ __forceinline__ float rcp_normal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// 1 / (1 + e^-z). Where e^-z overflows to infinity the result is the right 0.
__device__ __forceinline__ float sigmoid(float z) {
  return rcp(__fadd_rn(1.0f, ex2(__fmul_rn(z, -kLog2E))));
}
__device__ __forceinline__ float silu(float z) { return __fmul_rn(z, sigmoid(z)); }
// s (1 + z (1 - s)): finite for every finite z, 0 or 1 far from 0.
__device__ __forceinline__ float silu_derivative(float z) {
  const float s = sigmoid(z);
  return __fmul_rn(s, __fmaf_rn(z, __fsub_rn(1.0f, s), 1.0f));
}

}  // namespace lathe
