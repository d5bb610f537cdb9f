// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The rule of the lazy rescale, which all kernels by warpgroups share.
//
// A larger maximum makes the weights of later blocks smaller, and the accumulators of O would have
// to be scaled. It is not taken before a weight would exceed 2^kRescaleThreshold, which leaves
// float32 sums and 16-bit weights as exact as they were: after the first blocks hardly any row is
// scaled.
#pragma once
#include "attention/softmax.cuh"

namespace lathe {

constexpr float kRescaleThreshold = 8.0f;

// Returns whether a score of `most` would have a weight above the threshold under the maximum
// `before`.
__device__ __forceinline__ bool exceeds_threshold(float most, float before, float t) {
  return __fmul_rn(__fsub_rn(most, before), t) > kRescaleThreshold;
}
// Returns the maximum that a row goes on with when it meets a score of `found`.
__device__ __forceinline__ float lazy_maximum(float before, float found, float t) {
  const float most = fmaxf(before, found);
  return __fmul_rn(__fsub_rn(most, before), t) <= kRescaleThreshold ? before : most;
}
// Returns what scores are subtracted from: a row may have met no key yet, and -inf - -inf must not
// arise.
__device__ __forceinline__ float finite_base(float most) {
  return most == minus_infinity() ? 0.0f : most;
}

}  // namespace lathe
