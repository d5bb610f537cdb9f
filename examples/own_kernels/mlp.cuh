// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
/* lathe
name = "mlp"
summary = "y = silu(x G^T) * (x U^T): the first step of a gated MLP in one kernel."

[tensors]
x    = { in = ["bf16", "f16"], shape = "T D", aligned = 16 }
gate = { in = "x", shape = "H D", aligned = 16 }
up   = { in = "x", shape = "H D", aligned = 16 }
y    = { out = "x", shape = "T H", aligned = 16 }

[constants]
kRows = [128, 64]
kColumns = 64
kDepth = 32
kStages = [3, 4]
kThreads = "kRows"         # each warp has 32 rows

[launch]
grid = ["ceil_div(T, kRows)", "ceil_div(H, kColumns)"]
block = "kThreads"
shared = "kStages * kDepth * 2 * (kRows + 2 * kColumns)"

[cost]
flops = "4 * T * D * H"
tensor_ops = "4 * ceil_div(T, kRows) * ceil_div(H, kColumns) * kRows * kColumns * D"

[refuse]
"D % 8 != 0 || H % 8 != 0" = "rows must be whole chunks of 8 elements"
*/
#include "lathe/math.cuh"
#include "lathe/tile.cuh"

template <class Config>
__device__ void kernel(const Params& p) {
  using Element = typename Config::x_t;
  using TileX = lathe::Tile<Element, Config::kRows, Config::kDepth>;
  using TileW = lathe::Tile<Element, Config::kColumns, Config::kDepth>;
  constexpr int kStages = Config::kStages, kThreads = Config::kThreads;
  constexpr int kStageBytes = TileX::kBytes + 2 * TileW::kBytes;
  extern __shared__ float4 shared[];
  const unsigned begin = lathe::shared_address(shared);
  const long long row = static_cast<long long>(blockIdx.x) * Config::kRows;
  const long long column = static_cast<long long>(blockIdx.y) * Config::kColumns;
  const int warp_row = threadIdx.x / 32 * 32, lane = threadIdx.x % 32;
  const int steps = static_cast<int>((p.D + Config::kDepth - 1) / Config::kDepth);

  const auto copy = [&](int step) {
    if (step < steps) {
      const unsigned stage = begin + step % kStages * kStageBytes;
      const long long k = static_cast<long long>(step) * Config::kDepth, left = p.D - k;
      TileX{stage}.template copy<kThreads>(p.x + row * p.D + k, p.D, p.T - row, left);
      const TileW g{stage + TileX::kBytes}, u{stage + TileX::kBytes + TileW::kBytes};
      g.template copy<kThreads>(p.gate + column * p.D + k, p.D, p.H - column, left);
      u.template copy<kThreads>(p.up + column * p.D + k, p.D, p.H - column, left);
    }
    lathe::copy_async_commit();
  };
  for (int step = 0; step < kStages - 1; ++step) copy(step);

  float gates[2][8][4] = {}, ups[2][8][4] = {};
  for (int step = 0; step < steps; ++step) {
    lathe::copy_async_wait<kStages - 2>();
    __syncthreads();
    copy(step + kStages - 1);
    const unsigned stage = begin + step % kStages * kStageBytes;
    const TileX x{stage};
    const TileW g{stage + TileX::kBytes}, u{stage + TileX::kBytes + TileW::kBytes};
#pragma unroll
    for (int k = 0; k < Config::kDepth; k += 16) {
      unsigned a[2][4];
      for (int m = 0; m < 2; ++m) x.fragment_a(warp_row + 16 * m, k, a[m]);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        unsigned b[4], c[4];
        g.fragment_b(16 * n, k, b);
        u.fragment_b(16 * n, k, c);
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          lathe::multiply_add(gates[m][2 * n], a[m], b[0], b[1], Element());
          lathe::multiply_add(gates[m][2 * n + 1], a[m], b[2], b[3], Element());
          lathe::multiply_add(ups[m][2 * n], a[m], c[0], c[1], Element());
          lathe::multiply_add(ups[m][2 * n + 1], a[m], c[2], c[3], Element());
        }
      }
    }
  }

#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const long long i = row + warp_row + 16 * m + 8 * half + lane / 4;
        const long long j = column + 8 * n + lane % 4 * 2;
        if (i >= p.T || j >= p.H) continue;
        const float *g = &gates[m][n][2 * half], *u = &ups[m][n][2 * half];
        const float pair[2] = {lathe::silu(g[0]) * u[0], lathe::silu(g[1]) * u[1]};
        lathe::store_global(p.y + i * p.H + j, lathe::pack<Element, 4>(pair));
      }
    }
  }
}
