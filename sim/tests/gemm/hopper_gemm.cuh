// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// D = A * B' for sm_90a: bfloat16 in and out, sums in single precision. A is m x k, B is n x k.
//
// A cluster is two blocks, one above the other in M, that share their columns of B: each loads its
// own 128 rows of A and half of B's 128 rows, and sends that half to both. Warpgroup 0 loads
// through a ring of four stages, warpgroups 1 and 2 multiply 64 rows each. Every wait, fence,
// commit, arrival and expected byte in here is needed: gemm_mutation_test takes each away in turn.
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

namespace {

constexpr u32 kStages = 4;
constexpr u32 kTileM = 128, kTileN = 128, kTileK = 64;
constexpr u32 kBytesA = kTileM * kTileK * 2, kBytesB = kTileN * kTileK * 2;
constexpr u32 kStageBytes = kBytesA + kBytesB;
constexpr u32 kPanelBytes = 64 * 128;           // 64 rows of 64 columns of D
constexpr u32 kStagingBytes = 2 * kPanelBytes;  // of one warpgroup
constexpr u32 kConsumers = 2;
constexpr u32 kWarpsPerGroup = 4;
constexpr u32 kBlocks = 2;  // of a cluster
constexpr u32 kRing = kStages * kStageBytes;
constexpr u32 kBarriers = kRing + kConsumers * kStagingBytes;  // full, then empty

struct alignas(64) TensorMap {
  unsigned char bytes[128];
};

__device__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

__device__ u32 cluster_rank() {
  u32 rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// The same address in another block of the cluster.
__device__ u32 in_block(u32 address, u32 rank) {
  u32 there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

__device__ bool elect() {
  u32 chosen;
  asm volatile("{\n .reg .pred one;\n elect.sync _|one, 0xFFFFFFFF;\n selp.u32 %0, 1, 0, one;\n}"
               : "=r"(chosen));
  return chosen;
}

__device__ void init(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

__device__ void wait_full(u32 barrier, u32 parity) {
  asm volatile(
      "{\n .reg .pred over;\nAGAIN:\n"
      " mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n"
      " @!over bra AGAIN;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// The other block's consumers arrive here too.
__device__ void wait_empty(u32 barrier, u32 parity) {
  asm volatile(
      "{\n .reg .pred over;\nAGAIN:\n"
      " mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 over, [%0], %1;\n"
      " @!over bra AGAIN;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

__device__ void arrive_expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

__device__ void arrive_here(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ void arrive_there(u32 barrier) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier)
               : "memory");
}

__device__ void load(u32 to, const TensorMap& map, u32 k, u32 row, u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(&map), "r"(k), "r"(row), "r"(barrier)
      : "memory");
}

__device__ void load_to_all(u32 to, const TensorMap& map, u32 k, u32 row, u32 barrier) {
  const u16 all = (1 << kBlocks) - 1;
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(&map), "r"(k), "r"(row), "r"(barrier), "h"(all)
      : "memory");
}

__device__ void store(const TensorMap& map, u32 column, u32 row, u32 from) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(
          &map),
      "r"(column), "r"(row), "r"(from)
      : "memory");
}

__device__ void named_barrier(u32 id) { asm volatile("bar.sync %0, 128;" ::"r"(id) : "memory"); }

// K-major rows of 128 bytes, swizzled, in groups of eight.
__device__ u64 descriptor(u32 address) {
  return (u64)(address >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

#define SUMS_8(d, i)                                                                          \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])

__device__ void multiply(float (&d)[64], u64 a, u64 b, u32 add) {
  asm volatile(
      "{\n .reg .pred add;\n setp.ne.u32 add, %66, 0;\n"
      " wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, add, 1, 1, 0, 0;\n}"
      : SUMS_8(d, 0), SUMS_8(d, 8), SUMS_8(d, 16), SUMS_8(d, 24), SUMS_8(d, 32), SUMS_8(d, 40),
        SUMS_8(d, 48), SUMS_8(d, 56)
      : "l"(a), "l"(b), "r"(add));
}

__device__ u32 pack(float low, float high) {
  u32 both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

// A position in the ring of stages, and how often the ring was gone around.
struct Place {
  u32 stage = 0, parity = 0;
  __device__ void next() {
    stage = (stage + 1) % kStages;
    parity ^= stage == 0;
  }
};

struct Ring {
  u32 start;
  __device__ u32 a(u32 stage) const { return start + stage * kStageBytes; }
  __device__ u32 b(u32 stage) const { return a(stage) + kBytesA; }
  __device__ u32 full(u32 stage) const { return start + kBarriers + stage * 8; }
  __device__ u32 empty(u32 stage) const { return full(stage) + kStages * 8; }
};

struct Tiles {
  u32 n, k, count;  // tiles in N, in K; products of this launch, two tiles in M each
};

__device__ void produce(const Ring& ring, const TensorMap& map_a, const TensorMap& map_b,
                        const Tiles& tiles, u32 rank) {
  constexpr u32 kHalf = kTileN / kBlocks;
  Place at;
  for (u32 t = blockIdx.x / kBlocks; t < tiles.count; t += gridDim.x / kBlocks) {
    const u32 m = (t / tiles.n * kBlocks + rank) * kTileM;
    const u32 n = t % tiles.n * kTileN + rank * kHalf;
#pragma unroll 1
    for (u32 k = 0; k < tiles.k; ++k) {
      wait_empty(ring.empty(at.stage), at.parity ^ 1);
      arrive_expect(ring.full(at.stage), kStageBytes);
      load(ring.a(at.stage), map_a, k * kTileK, m, ring.full(at.stage));
      load_to_all(ring.b(at.stage) + rank * (kBytesB / kBlocks), map_b, k * kTileK, n,
                  ring.full(at.stage));
      at.next();
    }
  }
}

__device__ void release(const Ring& ring, u32 stage, u32 rank) {
  if (threadIdx.x % 32 != 0) return;
  arrive_here(ring.empty(stage));
  arrive_there(in_block(ring.empty(stage), rank ^ 1));
}

// Sums of one warpgroup to shared memory, 16 columns at a time, and from there to D.
__device__ void write(const float (&d)[64], u32 staging, const TensorMap& map_d, u32 column,
                      u32 row, u32 group) {
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32 % kWarpsPerGroup;
  const u32 line = warp * 16 + lane % 16;
  const bool leader = threadIdx.x % 128 == 0;
  if (leader) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  named_barrier(1 + group);
#pragma unroll
  for (u32 j = 0; j < kTileN / 16; ++j) {
    const u32 unit = (j % 4 * 2 + lane / 16) ^ line % 8;
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     staging + j / 4 * kPanelBytes + line * 128 + unit * 16),
                 "r"(pack(d[8 * j], d[8 * j + 1])), "r"(pack(d[8 * j + 2], d[8 * j + 3])),
                 "r"(pack(d[8 * j + 4], d[8 * j + 5])), "r"(pack(d[8 * j + 6], d[8 * j + 7]))
                 : "memory");
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  named_barrier(1 + group);
  if (!leader) return;
  store(map_d, column, row, staging);
  store(map_d, column + 64, row, staging + kPanelBytes);
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

__device__ void consume(const Ring& ring, const TensorMap& map_d, const Tiles& tiles, u32 rank,
                        u32 group) {
  Place at;
  const u32 staging = ring.start + kRing + group * kStagingBytes;
#pragma unroll 1
  for (u32 t = blockIdx.x / kBlocks; t < tiles.count; t += gridDim.x / kBlocks) {
    float d[64] = {};
    u32 last = 0;
#pragma unroll 1
    for (u32 k = 0; k < tiles.k; ++k) {
      wait_full(ring.full(at.stage), at.parity);
      const u64 a = descriptor(ring.a(at.stage) + group * (kBytesA / kConsumers));
      const u64 b = descriptor(ring.b(at.stage));
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
      for (u32 step = 0; step < kTileK / 16; ++step) {
        multiply(d, a + step * 2, b + step * 2, k + step);
      }
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
      asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
      // The stage before this one is free.
      if (k > 0) release(ring, last, rank);
      last = at.stage;
      at.next();
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    release(ring, last, rank);
    write(d, staging, map_d, t % tiles.n * kTileN,
          (t / tiles.n * kBlocks + rank) * kTileM + group * 64, group);
  }
  if (threadIdx.x % 128 == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

}  // namespace

extern "C" __global__ void __launch_bounds__(384, 1) __cluster_dims__(2, 1, 1)
    gemm(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
         const __grid_constant__ TensorMap map_d, u32 tiles_n, u32 tiles_k, u32 count) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const Ring ring{shared_address(shared)};
  const Tiles tiles{tiles_n, tiles_k, count};
  const u32 rank = cluster_rank(), group = threadIdx.x / 128;
  if (threadIdx.x == 0) {
    for (u32 s = 0; s < kStages; ++s) {
      init(ring.full(s), 1);
      init(ring.empty(s), kBlocks * kConsumers * kWarpsPerGroup);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
  if (group == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x < 32 && elect()) produce(ring, map_a, map_b, tiles, rank);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    consume(ring, map_d, tiles, rank, group - 1);
  }
  // Nobody leaves while the other block may still arrive here.
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}
