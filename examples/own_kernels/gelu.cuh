// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
/* lathe
name = "gelu"
summary = "y = scale * gelu(x + bias): the forward of lathe.torch.kernel."
[tensors]
x    = { in = ["f32", "bf16"], shape = "T D" }
bias = { in = "x", shape = "D", optional = true }
y    = { out = "x", shape = "T D" }
[options]
scale = { default = 1.0, allowed = "any" }
[launch]
grid = "ceil_div(T * D, 128)"
block = 128
*/
#include "lathe/math.cuh"
template <class Config>
__device__ void kernel(const Params& p) {
  const long long i = 128LL * blockIdx.x + threadIdx.x;
  if (i >= p.T * p.D) return;
  float x = lathe::to_float(p.x[i]);
  if constexpr (Config::has_bias) x += lathe::to_float(p.bias[i % p.D]);
  p.y[i] = lathe::from_float<typename Config::y_t>(lathe::gelu(x) * p.scale);
}
