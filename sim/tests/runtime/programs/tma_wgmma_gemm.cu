// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// C[m, n] = sum over k of A[m, k] * B[n, k], bf16 in, f32 out, as Hopper wants it: clusters of two
// blocks share each tile of B, which TMA multicasts; one warp loads and one warpgroup multiplies.
// The driver's calls come through the runtime, as in a program that is not linked with libcuda.
#include <cuda.h>
#include <cuda_bf16.h>

#include <vector>

#include "check.h"

constexpr int kTile = 64, kStages = 4, kCluster = 2;
constexpr int kTileBytes = kTile * kTile * sizeof(__nv_bfloat16), kHalf = kTile / kCluster;
constexpr int kConsumers = 128, kThreads = kConsumers + 32;

struct alignas(1024) Stage {
  __nv_bfloat16 a[kTile][kTile], b[kTile][kTile];
};
struct Shared {
  Stage stages[kStages];
  unsigned long long full[kStages];   // the two tiles of a stage have arrived
  unsigned long long empty[kStages];  // the consumers of both blocks have read the stage
};
constexpr int kSharedBytes = sizeof(Shared) + 1024;  // the stages begin at a multiple of 1024

__device__ unsigned address_of(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

__device__ unsigned rank_in_cluster() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
}

__device__ void wait_for(const void* barrier, int parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(address_of(barrier)),
      "r"(parity)
      : "memory");
}

// One arrival at this barrier of the block `rank` of the cluster.
__device__ void arrive_at(const void* barrier, unsigned rank) {
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n"
      "}" ::"r"(address_of(barrier)),
      "r"(rank)
      : "memory");
}

__device__ void load(void* to, const CUtensorMap* map, int x, int y, const void* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
      "{%2, %3}], [%4];" ::"r"(address_of(to)),
      "l"(map), "r"(x), "r"(y), "r"(address_of(barrier))
      : "memory");
}

// To the same place of every block of the cluster, and to the barrier there.
__device__ void load_for_all(void* to, const CUtensorMap* map, int x, int y, const void* barrier) {
  const unsigned short everybody = (1 << kCluster) - 1;
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::"
      "cluster "
      "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(address_of(to)),
      "l"(map), "r"(x), "r"(y), "r"(address_of(barrier)), "h"(everybody)
      : "memory");
}

// A K-major tile with the 128-byte swizzle: groups of eight rows are 1024 bytes apart.
__device__ unsigned long long descriptor(const void* tile, int byte) {
  const unsigned long long start = (address_of(tile) + byte) & 0x3FFFF;
  return start >> 4 | 1ull << 16 | static_cast<unsigned long long>(1024 >> 4) << 32 | 1ull << 62;
}

#define EIGHT(i)                                                                              \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])

__device__ void multiply(float (&d)[32], unsigned long long a, unsigned long long b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
      "%9, %10, %11, %12, "
      "%13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, "
      "%31}, %32, %33, 1, 1, "
      "1, 0, 0;"
      : EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24)
      : "l"(a), "l"(b));
}

// Each block loads its own tile of A and its half of the cluster's tile of B.
__device__ void produce(Shared& shared, const CUtensorMap* a, const CUtensorMap* b, int row,
                        int column, int steps) {
  const unsigned rank = rank_in_cluster();
  for (int step = 0; step < steps; ++step) {
    const int s = step % kStages;
    if (step >= kStages) wait_for(&shared.empty[s], (step / kStages - 1) & 1);
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address_of(&shared.full[s])),
        "r"(2 * kTileBytes)
        : "memory");
    load(shared.stages[s].a, a, step * kTile, row, &shared.full[s]);
    load_for_all(shared.stages[s].b[rank * kHalf], b, step * kTile, column + rank * kHalf,
                 &shared.full[s]);
  }
}

__device__ void consume(Shared& shared, float (&d)[32], int steps) {
  for (int step = 0; step < steps; ++step) {
    const int s = step % kStages;
    wait_for(&shared.full[s], step / kStages & 1);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int byte = 0; byte < 128; byte += 32) {
      multiply(d, descriptor(shared.stages[s].a, byte), descriptor(shared.stages[s].b, byte));
    }
    asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (float& value : d) asm volatile("" : "+f"(value)::"memory");
    // The stages of both blocks hold what this block's half of B went to.
    if (threadIdx.x % 32 < kCluster) arrive_at(&shared.empty[s], threadIdx.x % 32);
  }
}

__global__ void __launch_bounds__(kThreads)
    gemm(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, float* c,
         int n, int k) {
  extern __shared__ char raw[];
  Shared& shared = *reinterpret_cast<Shared*>(raw + (1024 - address_of(raw) % 1024) % 1024);
  const int row = blockIdx.y * kTile, column = blockIdx.x * kTile, steps = k / kTile;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address_of(&shared.full[s])));
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address_of(&shared.empty[s])),
                   "r"(kCluster * kConsumers / 32));
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  cluster_barrier();
  if (threadIdx.x == kConsumers) produce(shared, &a, &b, row, column, steps);
  if (threadIdx.x < kConsumers) {
    float d[32] = {};
    consume(shared, d, steps);
    const int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4, w = threadIdx.x / 32;
    for (int i = 0; i < 32; ++i) {
      const int y = row + 16 * w + g + 8 * (i / 2 % 2), x = column + 8 * (i / 4) + 2 * q + i % 2;
      c[static_cast<size_t>(y) * n + x] = d[i];
    }
  }
  __syncwarp();
  cluster_barrier();  // nobody leaves while the other block may still arrive here
}

using Encode = decltype(&cuTensorMapEncodeTiled);

Encode find_encode() {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult status;
  CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault,
                                         &status));
  compare("cuTensorMapEncodeTiled is found", status, cudaDriverEntryPointSuccess);
  return reinterpret_cast<Encode>(entry);
}

// Boxes of `box` rows of a matrix of `rows` rows.
CUtensorMap map_of(Encode encode, __nv_bfloat16* matrix, int rows, int k, int box) {
  CUtensorMap map;
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(k), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[] = {k * sizeof(__nv_bfloat16)};
  const cuuint32_t boxes[] = {kTile, static_cast<cuuint32_t>(box)}, steps[] = {1, 1};
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, matrix, sizes, strides, boxes, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  compare("a tensor map's error", result, CUDA_SUCCESS);
  return map;
}

// A launch in clusters of two blocks, one above the other; `cluster` has to live as long.
cudaLaunchConfig_t configure(int m, int n, cudaLaunchAttribute* cluster) {
  *cluster = {};
  cluster->id = cudaLaunchAttributeClusterDimension;
  cluster->val.clusterDim.x = 1;
  cluster->val.clusterDim.y = kCluster;
  cluster->val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(n / kTile, m / kTile);
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = kSharedBytes;
  config.attrs = cluster;
  config.numAttrs = 1;
  return config;
}

using Matrix = std::vector<__nv_bfloat16>;

// Small whole numbers: every sum is exact, in any order.
Matrix numbers(int count, unsigned state) {
  Matrix made(count);
  for (auto& value : made)
    value = __float2bfloat16(static_cast<float>(next_number(&state) % 9) - 4);
  return made;
}

__nv_bfloat16* upload(const Matrix& matrix) {
  __nv_bfloat16* there = nullptr;
  CHECK(cudaMalloc(&there, matrix.size() * sizeof matrix[0]));
  CHECK(cudaMemcpy(there, matrix.data(), matrix.size() * sizeof matrix[0], cudaMemcpyHostToDevice));
  return there;
}

void check_product(const std::vector<float>& c, const Matrix& a, const Matrix& b, int n, int k) {
  int wrong = 0;
  double sum = 0, expected_sum = 0;
  for (size_t at = 0; at < c.size(); ++at) {
    const __nv_bfloat16 *row = &a[at / n * k], *column = &b[at % n * k];
    double expected = 0;
    for (int i = 0; i < k; ++i) {
      expected += static_cast<double>(__bfloat162float(row[i])) * __bfloat162float(column[i]);
    }
    wrong += c[at] != expected;
    sum += std::fabs(c[at]);
    expected_sum += std::fabs(expected);
  }
  compare("sum of |C|", sum, expected_sum);
  compare("wrong elements", wrong, 0);
}

int main() {
  constexpr int kM = 256, kN = 192, kK = 448;
  const Matrix a = numbers(kM * kK, 7), b = numbers(kN * kK, 8);
  __nv_bfloat16 *a_there = upload(a), *b_there = upload(b);
  float* c_there = nullptr;
  CHECK(cudaMalloc(&c_there, kM * kN * sizeof(float)));
  const Encode encode = find_encode();
  const CUtensorMap map_a = map_of(encode, a_there, kM, kK, kTile);
  const CUtensorMap map_b = map_of(encode, b_there, kN, kK, kHalf);
  cudaLaunchAttribute cluster;
  const cudaLaunchConfig_t config = configure(kM, kN, &cluster);
  const cudaError_t refused = cudaLaunchKernelEx(&config, gemm, map_a, map_b, c_there, kN, kK);
  compare("error of more shared memory than was asked for", refused, cudaErrorInvalidValue);
  compare("the same, as the last error", cudaGetLastError(), cudaErrorInvalidValue);
  CHECK(cudaFuncSetAttribute(gemm, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
  int clusters = 0;
  CHECK(cudaOccupancyMaxActiveClusters(&clusters, gemm, &config));
  std::printf("%d clusters fit at once\n", clusters);
  CHECK(cudaLaunchKernelEx(&config, gemm, map_a, map_b, c_there, kN, kK));
  std::vector<float> c(kM * kN);
  CHECK(cudaMemcpy(c.data(), c_there, c.size() * sizeof(float), cudaMemcpyDeviceToHost));
  check_product(c, a, b, kN, kK);
  CHECK(cudaFree(a_there));
  CHECK(cudaFree(b_there));
  CHECK(cudaFree(c_there));
}
