// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The gradient of a gate as it was given, for every backward of KDA.
#pragma once
#include "kda/block.cuh"

namespace lathe {

// `d` is the gradient of the logarithm of the decay, `z` the raw gate. What they add to the
// gradient of A_log goes to `rate_sum`, if the token is `inside`.
template <class Config>
__device__ __forceinline__ float gate_gradient(float d, float z, float bias,
                                               const KdaNumbers& numbers, bool inside,
                                               float& rate_sum) {
  const float sum = z + bias, rate = numbers.gate_factor;
  if constexpr (Config::kGate == kKdaGateSoftplus) {
    const float log = decay_log<Config>(z, bias, numbers);
    // Nothing depends on a decay of 0: a large rate would make much of what is rounding.
    if (log <= kKdaLeastGate) d = 0.0f;
    if (inside) rate_sum = __fmaf_rn(d, log, rate_sum);
    // Far below 0 softplus is its own derivative, where sigmoid is too small for a float32.
    const float shifted = sum + numbers.gate_shift;
    return d * (shifted < -17.0f ? log : -rate * sigmoid(shifted));
  } else if constexpr (Config::kGate == kKdaGateBounded) {
    const float s = sigmoid(rate * sum);
    d *= numbers.lower_bound * s * (1.0f - s) * rate;
    if (inside) rate_sum = __fmaf_rn(d, sum, rate_sum);
    return d;
  } else {
    return d;
  }
}

}  // namespace lathe
