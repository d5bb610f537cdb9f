// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
/* lathe
name = "gelu_backward"
summary = "dx = scale * gelu'(x + bias) * dy, and dbias its sum over the rows."
[tensors]
x     = { in = ["f32", "bf16"], shape = "T D" }
bias  = { in = "x", shape = "D", optional = true }
dy    = { in = "x", shape = "T D" }
dx    = { out = "x", shape = "T D" }
dbias = { out = "x", shape = "D", optional = true, needs = "bias" }
[options]
scale = { default = 1.0, allowed = "any" }
[launch]
grid = "ceil_div(D, 32)"
block = 32
*/
#include "lathe/types.cuh"
// A thread goes down a column, so the sum over the rows needs no other one.
template <class Config>
__device__ void kernel(const Params& p) {
  using Element = typename Config::x_t;
  const long long d = 32LL * blockIdx.x + threadIdx.x;
  if (d >= p.D) return;
  float sum = 0.0f, bias = 0.0f;
  if constexpr (Config::has_bias) bias = lathe::to_float(p.bias[d]);
  for (long long i = d; i < p.T * p.D; i += p.D) {
    const float x = lathe::to_float(p.x[i]) + bias;
    const float phi = 0.5f * (1.0f + erff(x * 0.70710678f));
    const float slope = phi + x * 0.39894228f * expf(-0.5f * x * x);
    const float gradient = lathe::to_float(p.dy[i]) * p.scale * slope;
    p.dx[i] = lathe::from_float<Element>(gradient);
    sum += gradient;
  }
  if constexpr (Config::has_bias) p.dbias[d] = lathe::from_float<Element>(sum);
}
