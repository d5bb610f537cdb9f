// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
/* lathe
name = "matmul_sm90"
summary = "C = A B^T by TMA and the warpgroups of sm_90a: A [M,K] and B [N,K] are row-major."

[tensors]
a.in = ["bf16", "f16"]
a.shape = "M K"
a.map = { box = "64 kRows", swizzle = 128 }
b.in = "a"
b.shape = "N K"
b.map = { box = "64 kColumns", swizzle = 128 }
c = { out = "a", shape = "M N", aligned = 16 }

[constants]
kRows = 128                # of a block's tile of C: 64 for each of two consumers
kColumns = [256, 128]
kStages = [4, 3]           # of 64 columns of A and B

[launch]
grid = "min(multiprocessors, ceil_div(M, kRows) * ceil_div(N, kColumns))"
block = 384
shared = "kStages * (128 * (kRows + kColumns) + 16)"

[cost]
flops = "2 * M * N * K"
tensor_ops = "2 * ceil_div(M, kRows) * kRows * ceil_div(N, kColumns) * kColumns * K"

[refuse]
"sm != 90 || !sm_a" = "the warpgroup instructions are those of sm_90a"
"N % 8 != 0" = "rows of C must be whole chunks of 8 elements"
*/
#include "lathe/ring.cuh"
#include "lathe/schedule.cuh"
#include "lathe/tma.cuh"
#include "lathe/wgmma.cuh"

template <class Config>
struct Matmul {
  using Element = typename Config::a_t;
  static constexpr int kRows = Config::kRows, kColumns = Config::kColumns, kBytesA = 128 * kRows;
  using Ring = lathe::Ring<Config::kStages, 128 * (kRows + kColumns)>;
  using Order = lathe::TileOrder<16>;

  const Params& p;
  const Ring ring;
  const Order tiles;
  const int steps;

  // One thread: boxes of A and B into the ring, for one tile after another.
  __device__ __forceinline__ void produce() const {
    typename Ring::State state;
    for (long long i = blockIdx.x; i < tiles.count(); i += gridDim.x) {
      const lathe::TilePlace tile = tiles.at(i);
      for (int step = 0; step < steps; ++step, state.next()) {
        ring.acquire(state);
        ring.expect(state, 128 * (kRows + kColumns));
        const unsigned to = ring.stage(state), full = ring.full(state);
        lathe::copy_box(to, p.a_map, full, 64 * step, kRows * tile.row);
        lathe::copy_box(to + kBytesA, p.b_map, full, 64 * step, kColumns * tile.column);
      }
    }
  }

  // A warpgroup: 64 rows of each tile.
  __device__ __forceinline__ void consume(int consumer) const {
    typename Ring::State state, last;
    for (long long i = blockIdx.x; i < tiles.count(); i += gridDim.x) {
      float sum[kColumns / 2] = {};
      for (int step = 0; step < steps; ++step, state.next()) {
        ring.wait(state);
        const auto a = lathe::wgmma_columns(ring.stage(state) + 64 * 128 * consumer);
        const auto b = lathe::wgmma_columns(ring.stage(state) + kBytesA);
        lathe::wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          lathe::Wgmma<kColumns, false, Element>::run(sum, a.at(32 * k), b.at(32 * k), 1);
        }
        lathe::wgmma_commit();
        lathe::wgmma_wait<1>();  // the products of the step before have read their stage
        if (step > 0) ring.release(last), last.next();
      }
      lathe::wgmma_wait<0>();
      lathe::wgmma_fence_operands(sum);
      if (steps > 0) ring.release(last), last.next();
      store(tiles.at(i), consumer, sum);
    }
  }

  // A lane has two neighbouring columns of a row and of the row eight further on.
  __device__ __forceinline__ void store(const lathe::TilePlace& tile, int consumer,
                                        const float (&sum)[kColumns / 2]) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const long long row = 1LL * kRows * tile.row + 64 * consumer + 16 * warp + lane / 4;
    const long long column = 1LL * kColumns * tile.column + lane % 4 * 2;
    Element* const to = p.c + row * p.N + column;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (row + 8 * half >= p.M) return;
#pragma unroll
      for (int n = 0; n < kColumns / 8; ++n) {
        if (column + 8 * n >= p.N) break;
        const float pair[2] = {sum[4 * n + 2 * half], sum[4 * n + 2 * half + 1]};
        lathe::store_global(to + 8 * half * p.N + 8 * n, lathe::pack<Element, 4>(pair));
      }
    }
  }
};

template <class Config>
__device__ void kernel(const Params& p) {
  using Of = Matmul<Config>;
  extern __shared__ __align__(1024) char shared[];
  const typename Of::Ring ring{lathe::shared_address(shared)};
  if (threadIdx.x == 0) ring.init(1, 8);  // eight warps read
  __syncthreads();
  const Of matmul{p,
                  ring,
                  {lathe::ceil_div(p.M, Of::kRows), lathe::ceil_div(p.N, Of::kColumns)},
                  static_cast<int>(lathe::ceil_div(p.K, 64))};
  if (threadIdx.x < 128) {
    lathe::setmaxnreg_dec<24>();
    if (threadIdx.x == 0) matmul.produce();
  } else {
    lathe::setmaxnreg_inc<240>();
    matmul.consume(threadIdx.x / 128 - 1);
  }
}
