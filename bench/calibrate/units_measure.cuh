// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// All measurements of units.cu use this file: it has rows of figures, clocks, mbarriers, launches.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

namespace units {

inline void checked(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // An error that is not sticky must not reach the next measurement.
  throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(status));
}
#define CHECKED(call) ::units::checked(call, #call)

// Where kernels leave their cycles, one per block, and results that nobody reads.
struct Room {
  unsigned long long* cycles = nullptr;
  uint32_t* sink = nullptr;
  char* from = nullptr;  // two ranges of global memory
  char* to = nullptr;
  size_t bytes = 0;  // of each of them
  int processors = 0;
  bool tiny = false;  // few repetitions, for the simulator
};
inline Room room;

inline int times(int full) { return room.tiny ? std::max(1, full / 16) : full; }
inline std::string text(int value) { return std::to_string(value); }

// One row of the table. `take` makes the figure once; it is taken seven times after one to warm up.
template <class F>
void figure(const char* unit, const std::string& what, const char* unit_of_value, F take) {
  try {
    std::vector<double> values;
    take();
    for (int k = 0; k < (room.tiny ? 1 : 7); ++k) values.push_back(take());
    std::sort(values.begin(), values.end());
    std::printf("%s,%s,%.6g,%s,%.3g\n", unit, what.c_str(), values[values.size() / 2],
                unit_of_value, (values.back() - values.front()) / 2);
  } catch (const std::exception& error) {
    std::printf("%s,%s,failed,%s,0\n", unit, what.c_str(), unit_of_value);
    std::fprintf(stderr, "%s, %s: %s\n", unit, what.c_str(), error.what());
  }
  std::fflush(stdout);
}

// The mean of the cycles of all blocks.
inline double read_cycles(int blocks) {
  CHECKED(cudaGetLastError());
  CHECKED(cudaDeviceSynchronize());
  std::vector<unsigned long long> cycles(blocks);
  CHECKED(
      cudaMemcpy(cycles.data(), room.cycles, blocks * sizeof cycles[0], cudaMemcpyDeviceToHost));
  double sum = 0;
  for (const auto one : cycles) sum += static_cast<double>(one);
  return sum / blocks;
}

// Cycles of one repetition: what n more of them take, so that start and end do not count.
template <class F>
double per_repetition(F launch, int n, int blocks = 1) {
  launch(n);
  const double few = read_cycles(blocks);
  launch(2 * n);
  return (read_cycles(blocks) - few) / n;
}

struct Grid {
  int blocks = 1, threads = 128, shared = 0, cluster = 1;
};

template <class... P, class... A>
void start(const Grid& grid, void (*kernel)(P...), A... arguments) {
  if (grid.shared > 48 * 1024) {
    CHECKED(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, grid.shared));
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(grid.blocks);
  config.blockDim = dim3(grid.threads);
  config.dynamicSmemBytes = grid.shared;
  cudaLaunchAttribute cluster = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = grid.cluster;
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  config.attrs = &cluster;
  config.numAttrs = grid.cluster > 1 ? 1 : 0;
  CHECKED(cudaLaunchKernelEx(&config, kernel, static_cast<P>(arguments)...));
}

// Milliseconds of what `launch` puts into the stream.
template <class F>
double milliseconds(F launch) {
  cudaEvent_t begin, end;
  CHECKED(cudaEventCreate(&begin));
  CHECKED(cudaEventCreate(&end));
  CHECKED(cudaEventRecord(begin));
  launch();
  CHECKED(cudaGetLastError());
  CHECKED(cudaEventRecord(end));
  CHECKED(cudaEventSynchronize(end));
  float time = 0;
  CHECKED(cudaEventElapsedTime(&time, begin, end));
  CHECKED(cudaEventDestroy(begin));
  CHECKED(cudaEventDestroy(end));
  return time;
}

// The clock of a block: from the start of its first warp to the end of its last one.
struct Watch {
  long long begin;
  __device__ __forceinline__ void start() {
    __syncthreads();
    begin = clock64();
  }
  __device__ __forceinline__ void stop(unsigned long long* cycles) {
    __syncthreads();
    const long long end = clock64();
    if (threadIdx.x == 0) cycles[blockIdx.x] = end - begin;
  }
};

__device__ __forceinline__ uint32_t address(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

__device__ __forceinline__ void init(uint32_t barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ __forceinline__ void init_visible() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async;" ::: "memory");
}
__device__ __forceinline__ void expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void arrive_remote(uint32_t barrier) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier)
               : "memory");
}
__device__ __forceinline__ uint32_t remote(uint32_t shared, uint32_t rank) {
  uint32_t mapped;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(shared), "r"(rank));
  return mapped;
}
__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.aligned;\n barrier.cluster.wait.aligned;" ::: "memory");
}

// No wait is without end, as a mistake must not cost the minutes that the device is lent for.
constexpr int kTries = 1 << 22;
__device__ __forceinline__ void wait(uint32_t barrier, uint32_t parity) {
#pragma unroll 1
  for (int k = 0; k < kTries; ++k) {
    uint32_t done;
    asm volatile(
        "{\n .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        " selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
    if (done) return;
  }
  __trap();
}
__device__ __forceinline__ void wait_cluster(uint32_t barrier, uint32_t parity) {
#pragma unroll 1
  for (int k = 0; k < kTries; ++k) {
    uint32_t done;
    asm volatile(
        "{\n .reg .pred p;\n"
        " mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
        " selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
    if (done) return;
  }
  __trap();
}

__device__ __forceinline__ uint32_t random_bits(uint32_t seed) {
  seed = (seed ^ 61) ^ (seed >> 16);
  seed *= 9;
  seed ^= seed >> 4;
  seed *= 0x27d4eb2d;
  return seed ^ (seed >> 15);
}
// Two bf16 of either sign between 0.5 and 2, so that products neither vanish nor overflow.
__device__ __forceinline__ uint32_t random_pair(uint32_t seed) {
  return (random_bits(seed) & 0x80FF80FF) | 0x3F003F00;
}

}  // namespace units
