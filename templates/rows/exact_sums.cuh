// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// exact_sums: columns of float32 are added without an error, so that the sum is the same in any
// order, and over any number of ranks: ranks add the words of their sums as integers.
//
// A block owns 32 columns; warp w adds rows w, w + kWarps, ...
#pragma once
#include "common/exact_sum.cuh"

namespace lathe {

// [warps][words][32]
template <class Config>
struct ExactSumsSmem {
  static constexpr int kBytes = 8 * kExactWords * Config::kThreads;
};

template <class Config>
__device__ void exact_sums(const ExactSumsParams& p) {
  constexpr int kWarps = Config::kThreads / 32;
  extern __shared__ float4 shared[];
  long long* words = reinterpret_cast<long long*>(shared);
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const long long first = static_cast<long long>(blockIdx.x) * 32;
  ExactSum sum;
  sum.clear();
  if (first + lane < p.columns) {
    const float* terms = static_cast<const float*>(p.terms) + first + lane;
#pragma unroll 1
    for (int row = warp; row < p.rows; row += kWarps) {
      sum.add(load_element(terms + row * p.row_stride));
    }
  }
#pragma unroll
  for (int w = 0; w < kExactWords; ++w) words[(warp * kExactWords + w) * 32 + lane] = sum.word[w];
  __syncthreads();  // all warps' sums are there
  for (int e = static_cast<int>(threadIdx.x); e < 32 * kExactWords; e += Config::kThreads) {
    const int w = e / 32, c = e % 32;
    long long total = 0;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) total += words[(i * kExactWords + w) * 32 + c];
    if (first + c < p.columns) {
      static_cast<long long*>(p.sums)[w * static_cast<long long>(p.columns) + first + c] = total;
    }
  }
}

}  // namespace lathe
