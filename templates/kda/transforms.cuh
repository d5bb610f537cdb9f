// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The inputs of KDA become these before the recurrence, in float32: gates, beta, the norm of
// queries and keys. One text for every kernel of the family, so that all see the same numbers.
#pragma once
#include "common/math.cuh"
#include "params/kda.h"

namespace lathe {

// exp of anything below is 0 in float32, and so is its gradient; clamped, a sum of gates keeps its
// low bits. A NaN stays one.
constexpr float kKdaLeastGate = -110.0f;

// ln(1 + e^z) without overflow above and without the zero below -17 that loses the gradient.
__device__ __forceinline__ float softplus(float z) {
  const float most = z > 0.0f ? z : 0.0f;
  return __fadd_rn(most, log1pf(ex2(__fmul_rn(-fabsf(z), kLog2E))));
}

// exp(A_log) as factor * e^shift: from 89 on it is no float32, but times a softplus that is all but
// 0 it is a decay like any other. There softplus(z) is e^z, so the shift is added to z. Where that
// would be wrong, the gate is far beyond the least either way.
struct KdaRate {
  float factor, shift;
};
__device__ __forceinline__ KdaRate kda_rate(float A_log) {
  constexpr float kMost = 88.0f;
  const float held = A_log > kMost ? kMost : A_log;
  return {ex2(__fmul_rn(held, kLog2E)), __fsub_rn(A_log, held)};
}

// sigmoid(z), 0 where it is below the smallest normal number: fewer instructions, the same values.
__device__ __forceinline__ float gate_sigmoid(float z) {
  return rcp_normal(__fadd_rn(1.0f, ex2_normal(__fmul_rn(z, -kLog2E))));
}

// The natural logarithm of the decay. `z`: g as given, or the raw gate with its bias, and for a
// softplus with the rate's shift.
template <int kGate>
__device__ __forceinline__ float kda_gate(float z, float rate, float lower_bound) {
  float g = z;
  if constexpr (kGate == kKdaGateSoftplus) g = -__fmul_rn(rate, softplus(z));
  if constexpr (kGate == kKdaGateBounded)
    g = __fmul_rn(lower_bound, gate_sigmoid(__fmul_rn(rate, z)));
  return g < kKdaLeastGate ? kKdaLeastGate : g;
}

// exp(g). A weak gate acts on a state thousands of times over: near 0 the error must be the
// rounding's, where ex2 has two last places that all add up.
__device__ __forceinline__ float kda_decay(float g) {
  constexpr float kWeak = -0.125f;
  float fine = __fmaf_rn(g, 1.0f / 120, 1.0f / 24);
  fine = __fmaf_rn(fine, g, 1.0f / 6);
  fine = __fmaf_rn(fine, g, 0.5f);
  fine = __fmaf_rn(fine, g, 1.0f);
  fine = __fmaf_rn(fine, g, 1.0f);
  return g > kWeak ? fine : ex2(__fmul_rn(g, kLog2E));
}

// 1 / |x| of a row whose squares add up to `sum`.
__device__ __forceinline__ float kda_norm(float sum) { return rsqrtf(__fadd_rn(sum, 1e-6f)); }

// Returns the factor of a row of y (kda/kda_backward_scan.cuh) that is kept as one of dv: beta, or
// 1 where a division by beta would not bring y back.
__device__ __forceinline__ float kda_row_scale(float beta) {
  return fabsf(beta) >= 0x1p-40f ? beta : 1.0f;
}

// `beta` as given, or a logit; `factor` is 1, or 2 with negative eigenvalues.
template <bool kSigmoid>
__device__ __forceinline__ float kda_beta(float beta, float factor) {
  return kSigmoid ? __fmul_rn(factor, sigmoid(beta)) : beta;
}

}  // namespace lathe
