// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Reductions over a warp and over a block of threads. Every thread gets the result, and it is the
// same bits whatever else runs: the order of the sums is fixed.
//
//   __shared__ lathe::BlockReduce<Config::kThreads> reduce;
//   const long long row = blockIdx.x * p.D;
//   float most = -1e30f, sum = 0.0f;
//   for (int d = threadIdx.x; d < p.D; d += Config::kThreads) most = fmaxf(most, p.x[row + d]);
//   most = reduce.max(most);
//   for (int d = threadIdx.x; d < p.D; d += Config::kThreads) sum += p.x[row + d] - most;
//   sum = reduce.sum(sum);
//   if (threadIdx.x == 0) p.y[blockIdx.x] = sum;
//
// All threads of the block call each function.
#pragma once

namespace lathe {

struct Sum {
  __device__ __forceinline__ float operator()(float a, float b) const { return a + b; }
};
struct Max {
  __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// Combines the values of kLanes neighbouring lanes, a power of two up to 32.
template <int kLanes = 32, class Operation>
__device__ __forceinline__ float warp_reduce(float value, Operation operation) {
#pragma unroll
  for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) {
    value = operation(value, __shfl_xor_sync(0xffffffffu, value, lanes));
  }
  return value;
}
template <int kLanes = 32>
__device__ __forceinline__ float warp_sum(float value) {
  return warp_reduce<kLanes>(value, Sum());
}
template <int kLanes = 32>
__device__ __forceinline__ float warp_max(float value) {
  return warp_reduce<kLanes>(value, Max());
}

// Lies in shared memory. kThreads is a multiple of 32.
template <int kThreads>
struct BlockReduce {
  static constexpr int kWarps = kThreads / 32;
  static_assert(kThreads % 32 == 0 && kThreads <= 1024, "a block of whole warps");
  float part[kWarps];

  template <class Operation>
  __device__ __forceinline__ float reduce(float value, Operation operation) {
    value = warp_reduce(value, operation);
    if constexpr (kWarps == 1) return value;
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = value;
    __syncthreads();
    value = part[0];
#pragma unroll
    for (int i = 1; i < kWarps; ++i) value = operation(value, part[i]);
    __syncthreads();  // before the next call writes the parts
    return value;
  }
  __device__ __forceinline__ float sum(float value) { return reduce(value, Sum()); }
  __device__ __forceinline__ float max(float value) { return reduce(value, Max()); }
};

}  // namespace lathe
