// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Partial results of attention, joined. A partial is (o, lse): float32 o already divided by its sum
// of exponentials, and the natural logarithm of that sum; over no key it is (0, -inf). With
//   mu = max_s lse_s, or 0 where that is -inf;  w_s = e^(lse_s - mu);  W = sum_s w_s
// the whole is out = sum_s (w_s / W) o_s, or 0 where W is 0, and lse = mu + ln W, which is -inf
// where W is 0. A sink is one more partial, (0, sink). The order of the sums is the caller's, who
// keeps it fixed; where w_s is 0, o_s need not be there and is not to be read.
#pragma once
#include "attention/softmax.cuh"

namespace lathe {

// mu of the largest lse: -inf - -inf must not arise.
__device__ __forceinline__ float merge_base(float largest) {
  return largest == minus_infinity() ? 0.0f : largest;
}
// The largest weighs 1, an infinite one too, of a sink.
__device__ __forceinline__ float merge_weight(float lse, float base) {
  return lse == base ? 1.0f : ex2_flushed(__fmul_rn(__fsub_rn(lse, base), kLog2E));
}
// Returns the factor of the weights, 1 / W.
__device__ __forceinline__ float merge_scale(float sum) { return sum == 0.0f ? 0.0f : rcp(sum); }
__device__ __forceinline__ float merge_lse(float base, float sum) {
  return sum == 0.0f ? minus_infinity() : __fmaf_rn(lg2(sum), kLn2, base);
}

}  // namespace lathe
