// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The kernels of plain_client.c: a sum, a product with TMA and wgmma, a reduction over a cluster.
typedef unsigned int u32;
typedef unsigned long long u64;

extern "C" __global__ void vector_add(const float* x, const float* y, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] + y[i];
}

// C[m, n] = sum over k of A[m, k] * B[n, k], bf16 in, f32 out. A CTA is one warpgroup and makes 64
// x 64 of C, 64 of k at a time, from a ring of stages that thread 0 fills. Both operands are
// K-major with the 128-byte swizzle; what lies outside the matrices is zero by the tensor maps, or
// not stored.
constexpr int kTile = 64, kStages = 3, kBytes = kTile * kTile * 2;

struct alignas(64) TensorMap {
  char opaque[128];
};

struct alignas(1024) Shared {
  char a[kStages][kBytes], b[kStages][kBytes];
  float c[kTile][kTile];
  u64 full[kStages];
};

__device__ u32 address_of(const void* pointer) { return (u32)__cvta_generic_to_shared(pointer); }

__device__ void load_tile(void* to, const TensorMap* map, int x, int y, u64* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
      "{%2, "
      "%3}], [%4];" ::"r"(address_of(to)),
      "l"(map), "r"(x), "r"(y), "r"(address_of(barrier))
      : "memory");
}

__device__ void wait_for(u64* barrier, int parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(address_of(barrier)),
      "r"(parity)
      : "memory");
}

// K-major, 128-byte swizzle: groups of eight rows are 1024 bytes apart.
__device__ u64 descriptor(const void* tile, int byte) {
  u64 start = (address_of(tile) + byte) & 0x3FFFF;
  return start >> 4 | (u64)1 << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}

#define ROW(i)                                                                                \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])

__device__ void multiply(float (&d)[32], u64 a, u64 b, int keep) {
  asm volatile(
      "{\n"
      ".reg .pred keep;\n"
      "setp.ne.b32 keep, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
      "%9, %10, %11, "
      "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, "
      "%30, %31}, "
      "%32, %33, keep, 1, 1, 0, 0;\n"
      "}"
      : ROW(0), ROW(8), ROW(16), ROW(24)
      : "l"(a), "l"(b), "r"(keep));
}

extern "C" __global__ void __launch_bounds__(128)
    matmul(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
           const __grid_constant__ TensorMap map_c, int k) {
  extern __shared__ char raw[];
  Shared& shared = *(Shared*)(raw + (1024 - address_of(raw) % 1024) % 1024);
  const int t = threadIdx.x, row = blockIdx.y * kTile, column = blockIdx.x * kTile;
  const int steps = (k + kTile - 1) / kTile;
  if (t == 0) {
    for (int s = 0; s < kStages; ++s)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address_of(&shared.full[s])));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  auto fill = [&](int step) {
    int s = step % kStages;
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address_of(&shared.full[s])),
        "r"(2 * kBytes)
        : "memory");
    load_tile(shared.a[s], &map_a, step * kTile, row, &shared.full[s]);
    load_tile(shared.b[s], &map_b, step * kTile, column, &shared.full[s]);
  };
  if (t == 0)
    for (int step = 0; step < kStages - 1 && step < steps; ++step) fill(step);
  float d[32];
  for (int i = 0; i < 32; ++i) d[i] = 0;
  for (int step = 0; step < steps; ++step) {
    const int s = step % kStages;
    wait_for(&shared.full[s], step / kStages & 1);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int part = 0; part < 4; ++part)
      multiply(d, descriptor(shared.a[s], 32 * part), descriptor(shared.b[s], 32 * part),
               step + part);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int i = 0; i < 32; ++i) asm volatile("" : "+f"(d[i])::"memory");
    __syncthreads();  // everyone has read the stage that is filled next
    if (t == 0 && step + kStages - 1 < steps) fill(step + kStages - 1);
  }
  const int g = t % 32 / 4, q = t % 4, w = t / 32;
  for (int i = 0; i < 32; ++i)
    shared.c[16 * w + g + 8 * (i / 2 % 2)][8 * (i / 4) + 2 * q + i % 2] = d[i];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (t == 0) {
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(
            &map_c),
        "r"(column), "r"(row), "r"(address_of(shared.c))
        : "memory");
    asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
  }
}

__device__ u32 at_rank(u32 address, u32 rank) {
  u32 there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

__device__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
}

// out[cluster] = sum of the cluster's part of x. Every CTA adds up its own numbers; CTA 0 reads the
// others' sums out of their shared memory. Each CTA also counts itself in CTA 0's counter.
extern "C" __global__ void cluster_sum(const int* x, int* out, int* counts, int per_block) {
  __shared__ int part[128];
  __shared__ u32 counter;
  u32 rank, size, cluster;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  asm("mov.u32 %0, %%clusterid.x;" : "=r"(cluster));
  const int t = threadIdx.x;
  if (t == 0) counter = 0;
  int sum = 0;
  for (int i = t; i < per_block; i += 128) sum += x[blockIdx.x * per_block + i];
  part[t] = sum;
  __syncthreads();
  for (int half = 64; half > 0; half /= 2) {
    if (t < half) part[t] += part[t + half];
    __syncthreads();
  }
  cluster_barrier();
  if (t == 0)
    asm volatile("red.relaxed.cluster.shared::cluster.add.u32 [%0], 1;" ::"r"(
                     at_rank(address_of(&counter), 0))
                 : "memory");
  if (rank == 0 && t == 0) {
    int all = 0;
    for (u32 r = 0; r < size; ++r) {
      int value;
      asm volatile("ld.shared::cluster.s32 %0, [%1];"
                   : "=r"(value)
                   : "r"(at_rank(address_of(part), r))
                   : "memory");
      all += value;
    }
    out[cluster] = all;
  }
  cluster_barrier();  // nobody leaves while its shared memory is read, and all have counted
  if (rank == 0 && t == 0) counts[cluster] = counter;
}
