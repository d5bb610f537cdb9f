// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
/* lathe
name = "matmul"
summary = "C = A B^T with the tensor cores of sm_80: A [M,K] and B [N,K] are row-major."

[tensors]
a = { in = ["bf16", "f16"], shape = "M K", aligned = 16 }
b = { in = "a", shape = "N K", aligned = 16 }
c = { out = "a", shape = "M N", aligned = 16 }

[constants]
kRows = [128, 64]          # of a block's tile of C
kColumns = [128, 64]
kDepth = 64                # of a step
kStages = [2, 3]
kThreads = "32 * (kRows / 64) * (kColumns / 64)"

[launch]
grid = ["ceil_div(M, kRows)", "ceil_div(N, kColumns)"]
block = "kThreads"
min_blocks = 2             # registers for two blocks on a multiprocessor
shared = "kStages * kDepth * 2 * (kRows + kColumns)"

[cost]
flops = "2 * M * N * K"
tensor_ops = "2 * ceil_div(M, kRows) * ceil_div(N, kColumns) * kRows * kColumns * K"

[refuse]
"K % 8 != 0 || N % 8 != 0" = "rows must be whole chunks of 8 elements"
*/
#include "lathe/tile.cuh"

// Each warp has 64 rows and 64 columns of C.
template <class Config>
__device__ void kernel(const Params& p) {
  using Element = typename Config::a_t;
  using TileA = lathe::Tile<Element, Config::kRows, Config::kDepth>;
  using TileB = lathe::Tile<Element, Config::kColumns, Config::kDepth>;
  constexpr int kStages = Config::kStages, kStageBytes = TileA::kBytes + TileB::kBytes;
  extern __shared__ float4 shared[];
  const unsigned begin = lathe::shared_address(shared);
  const long long row = static_cast<long long>(blockIdx.x) * Config::kRows;
  const long long column = static_cast<long long>(blockIdx.y) * Config::kColumns;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_row = warp % (Config::kRows / 64) * 64;
  const int warp_column = warp / (Config::kRows / 64) * 64;
  const int steps = static_cast<int>((p.K + Config::kDepth - 1) / Config::kDepth);

  const auto copy = [&](int step) {
    if (step < steps) {
      const unsigned stage = begin + step % kStages * kStageBytes;
      const long long k = static_cast<long long>(step) * Config::kDepth;
      TileA{stage}.template copy<Config::kThreads>(p.a + row * p.K + k, p.K, p.M - row, p.K - k);
      TileB{stage + TileA::kBytes}.template copy<Config::kThreads>(p.b + column * p.K + k, p.K,
                                                                   p.N - column, p.K - k);
    }
    lathe::copy_async_commit();  // an empty group where there is nothing, so that counts go on
  };
  for (int step = 0; step < kStages - 1; ++step) copy(step);

  float sum[4][8][4] = {};
  for (int step = 0; step < steps; ++step) {
    lathe::copy_async_wait<kStages - 2>();
    __syncthreads();  // this step's tiles are here, and nobody reads the stage that is next filled
    copy(step + kStages - 1);
    const unsigned stage = begin + step % kStages * kStageBytes;
    const TileA a{stage};
    const TileB b{stage + TileA::kBytes};
#pragma unroll
    for (int k = 0; k < Config::kDepth; k += 16) {
      unsigned x[4][4];
      for (int m = 0; m < 4; ++m) a.fragment_a(warp_row + 16 * m, k, x[m]);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        unsigned y[4];
        b.fragment_b(warp_column + 16 * n, k, y);
#pragma unroll
        for (int m = 0; m < 4; ++m) {
          lathe::multiply_add(sum[m][2 * n], x[m], y[0], y[1], Element());
          lathe::multiply_add(sum[m][2 * n + 1], x[m], y[2], y[3], Element());
        }
      }
    }
  }

  // A lane has two neighbouring columns of a row and of the row eight further on.
#pragma unroll
  for (int m = 0; m < 4; ++m) {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const long long i = row + warp_row + 16 * m + 8 * half + lane / 4;
        const long long j = column + warp_column + 8 * n + lane % 4 * 2;
        if (i >= p.M || j >= p.N) continue;
        const float pair[2] = {sum[m][n][2 * half], sum[m][n][2 * half + 1]};
        lathe::store_global(p.c + i * p.N + j, lathe::pack<Element, 4>(pair));
      }
    }
  }
}
