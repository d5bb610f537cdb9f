// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
/* lathe
name = "quantise"
summary = "y = x / scale in e4m3 with scale = max|x| / 448 of the row, 1 for a row of zeros."

[tensors]
x     = { in = ["f16", "bf16", "f32"], shape = "T D", aligned = 16 }
y     = { out = "f8_e4m3", shape = "T D", aligned = 16 }
scale = { out = "f32", shape = "T" }

[constants]
D = "dim"
kThreads = [128, 64, 256]
kCount = "16 / bytes(x)"

[launch]
grid = "T"
block = "kThreads"

[refuse]
"D % kCount != 0" = "a row must be whole vectors of 16 bytes"
*/
#include "lathe/narrow.cuh"
#include "lathe/reduce.cuh"
#include "lathe/vector.cuh"

template <class Config>
__device__ void kernel(const Params& p) {
  constexpr int kCount = Config::kCount, kVectors = Config::D / kCount;
  constexpr int kSteps = (kVectors + Config::kThreads - 1) / Config::kThreads;
  __shared__ lathe::BlockReduce<Config::kThreads> reduce;
  const long long row = static_cast<long long>(blockIdx.x) * Config::D;
  float x[kSteps][kCount], most = 0.0f;

#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int vector = step * Config::kThreads + threadIdx.x;
    if (vector >= kVectors) break;
    lathe::load(p.x + row + vector * kCount, x[step]);
#pragma unroll
    for (int i = 0; i < kCount; ++i) most = fmaxf(most, fabsf(x[step][i]));
  }
  most = reduce.max(most);
  const float scale = most == 0.0f ? 1.0f : __fdiv_rn(most, lathe::kMostE4m3);
  if (threadIdx.x == 0) p.scale[blockIdx.x] = scale;

#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int vector = step * Config::kThreads + threadIdx.x;
    if (vector >= kVectors) break;
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[step][i] = __fdiv_rn(x[step][i], scale);
    lathe::store_e4m3(p.y + row + vector * kCount, x[step]);
  }
}
