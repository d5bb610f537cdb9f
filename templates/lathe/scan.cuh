// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Running sums over a warp and over a block of threads, in the order of the threads: of float, int
// or long long. The order of the sums is fixed, so the bits are too.
//
//   __shared__ lathe::BlockScan<int, Config::kThreads> scan;
//   const bool keep = threadIdx.x < p.N && p.x[threadIdx.x] > 0.0f;
//   const int place = scan.exclusive(keep);           // how many are kept before this one
//   if (keep) p.y[place] = p.x[threadIdx.x];
//   if (threadIdx.x == 0) p.count[0] = scan.total();  // of the last scan
//
// All threads of the block call each function.
#pragma once

namespace lathe {

// The sum of the values of lanes 0 to this one.
template <class Value>
__device__ __forceinline__ Value warp_inclusive_sum(Value value) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int lanes = 1; lanes < 32; lanes *= 2) {
    const Value before = __shfl_up_sync(0xffffffffu, value, lanes);
    if (lane >= lanes) value += before;
  }
  return value;
}

// Lies in shared memory. kThreads is a multiple of 32.
template <class Value, int kThreads>
struct BlockScan {
  static constexpr int kWarps = kThreads / 32;
  static_assert(kThreads % 32 == 0 && kThreads <= 1024, "a block of whole warps");
  Value part[kWarps];

  // The sum of the values of threads 0 to this one.
  __device__ __forceinline__ Value inclusive(Value value) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    value = warp_inclusive_sum(value);
    __syncthreads();  // nobody reads the parts of an earlier scan any more
    if (threadIdx.x % 32 == 31) part[warp] = value;
    __syncthreads();
    Value before = 0;
    for (int i = 0; i < warp; ++i) before += part[i];
    return before + value;
  }
  // The sum of the values of the threads before this one.
  __device__ __forceinline__ Value exclusive(Value value) {
    const Value through = inclusive(value), above = __shfl_up_sync(0xffffffffu, through, 1);
    const int warp = static_cast<int>(threadIdx.x) / 32;
    if (threadIdx.x % 32 != 0) return above;
    Value before = 0;
    for (int i = 0; i < warp; ++i) before += part[i];
    return before;
  }
  // The sum of all values of the last scan.
  __device__ __forceinline__ Value total() const {
    Value sum = 0;
    for (int i = 0; i < kWarps; ++i) sum += part[i];
    return sum;
  }
};

}  // namespace lathe
