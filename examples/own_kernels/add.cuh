// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
/* lathe
name = "add"
summary = "z = x + y."

[tensors]
x = { in = ["f32", "f16", "bf16"], shape = "N" }
y = { in = "x", shape = "N" }
z = { out = "x", shape = "N" }

[launch]
grid = "ceil_div(N, 256)"
block = 256
*/
template <class Config>
__device__ void kernel(const Params& p) {
  using Element = typename Config::x_t;
  const long long i = 256LL * blockIdx.x + threadIdx.x;
  if (i >= p.N) return;
  const float sum = lathe::to_float(p.x[i]) + lathe::to_float(p.y[i]);
  p.z[i] = lathe::from_float<Element>(sum);
}
