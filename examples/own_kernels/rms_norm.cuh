// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
/* lathe
name = "rms_norm"
summary = "y = h / rms(h) * weight with h = x + residual, row by row."

[tensors]
x        = { in = ["f16", "bf16", "f32"], shape = "T D", aligned = 16 }
residual = { in = "x", shape = "T D", aligned = 16, optional = true, what = "Added before." }
weight   = { in = "x", shape = "D", aligned = 16, what = "A factor for each column." }
y        = { out = "x", shape = "T D", aligned = 16 }
sum      = { out = "x", shape = "T D", aligned = 16, optional = true, needs = "residual" }

[options]
eps = { default = 1e-6, allowed = ">0", what = "Added to the mean square." }

[constants]
D = "dim"
kThreads = [128, 256, 64]
kCount = "16 / bytes(x)"

[launch]
grid = "T"
block = "kThreads"

[cost]
flops = "4 * T * D"

[refuse]
"D % kCount != 0" = "a row must be whole vectors of 16 bytes"
*/
#include "lathe/reduce.cuh"
#include "lathe/vector.cuh"

template <class Config>
__device__ void kernel(const Params& p) {
  constexpr int kCount = Config::kCount, kVectors = Config::D / kCount;
  constexpr int kSteps = (kVectors + Config::kThreads - 1) / Config::kThreads;
  __shared__ lathe::BlockReduce<Config::kThreads> reduce;
  const long long row = static_cast<long long>(blockIdx.x) * Config::D;
  float h[kSteps][kCount], squares = 0.0f;

  // The row stays in registers between the two passes.
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int vector = step * Config::kThreads + threadIdx.x;
    if (vector >= kVectors) break;
    lathe::load(p.x + row + vector * kCount, h[step]);
    if constexpr (Config::has_residual) {
      float other[kCount];
      lathe::load(p.residual + row + vector * kCount, other);
#pragma unroll
      for (int i = 0; i < kCount; ++i) h[step][i] += other[i];
      if constexpr (Config::has_sum) lathe::store(p.sum + row + vector * kCount, h[step]);
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) squares += h[step][i] * h[step][i];
  }

  const float factor = rsqrtf(reduce.sum(squares) / Config::D + p.eps);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int vector = step * Config::kThreads + threadIdx.x;
    if (vector >= kVectors) break;
    float weight[kCount];
    lathe::load(p.weight + vector * kCount, weight);
#pragma unroll
    for (int i = 0; i < kCount; ++i) h[step][i] *= factor * weight[i];
    lathe::store(p.y + row + vector * kCount, h[step]);
  }
}
