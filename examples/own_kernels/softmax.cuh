// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
/* lathe
name = "softmax"
summary = "y = exp(x - max(x)) / sum(exp(x - max(x))), row by row."

[tensors]
x = { in = ["f32", "f16", "bf16"], shape = "T D", aligned = 16 }
y = { out = "x", shape = "T D", aligned = 16 }

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
#include "lathe/math.cuh"
#include "lathe/reduce.cuh"
#include "lathe/vector.cuh"

template <class Config>
__device__ void kernel(const Params& p) {
  constexpr int kCount = Config::kCount, kVectors = Config::D / kCount;
  constexpr int kSteps = (kVectors + Config::kThreads - 1) / Config::kThreads;
  __shared__ lathe::BlockReduce<Config::kThreads> reduce;
  const long long row = static_cast<long long>(blockIdx.x) * Config::D;
  float x[kSteps][kCount], most = -3.4e38f;

  // The row stays in registers. Powers of 2 are one instruction: exp(x) is 2^(x log2(e)).
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int vector = step * Config::kThreads + threadIdx.x;
    if (vector >= kVectors) break;
    lathe::load(p.x + row + vector * kCount, x[step]);
#pragma unroll
    for (int i = 0; i < kCount; ++i) most = fmaxf(most, x[step][i]);
  }
  most = reduce.max(most);

  float sum = 0.0f;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    if (step * Config::kThreads + threadIdx.x >= kVectors) break;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      x[step][i] = lathe::ex2((x[step][i] - most) * lathe::kLog2E);
      sum += x[step][i];
    }
  }
  const float factor = 1.0f / reduce.sum(sum);

#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int vector = step * Config::kThreads + threadIdx.x;
    if (vector >= kVectors) break;
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[step][i] *= factor;
    lathe::store(p.y + row + vector * kCount, x[step]);
  }
}
