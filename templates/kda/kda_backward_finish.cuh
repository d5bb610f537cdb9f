// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda_backward_finish: dA_log and ddt_bias, the sums over slots of what kda_backward left for each
// chunk,
//
//   ddt_bias[hv, d] = sum_s bias_sums[s, hv, d]        dA_log[hv] = sum_s rate_sums[s, hv]
//
// A thread block owns 32 columns of the HV * K of bias_sums, then of the HV of rate_sums. Warp w
// adds up slots w, w + kWarps, ... of them, one lane a column and 16 sums a lane; these and then
// the warps' are added in one order that only the number of slots decides, so that a repetition is
// the same to the bit.
#pragma once
#include "common/math.cuh"
#include "common/types.cuh"
#include "params/kda_chunked.h"

namespace lathe {

constexpr int kKdaFinishColumns = 32;  // of a thread block

// A float32 of each thread.
template <class Config>
struct KdaBackwardFinishSmem {
  static constexpr int kBytes = 4 * Config::kThreads;
};

template <class Config>
__device__ void kda_backward_finish(const KdaBackwardFinishParams& p) {
  constexpr int kWarps = Config::kThreads / 32, kSums = 16;
  extern __shared__ float4 shared[];
  float* sums = reinterpret_cast<float*>(shared);  // [warps][32]
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int bias_columns = p.ddt_bias == nullptr ? 0 : p.value_heads * p.key_dim;
  const int bias_blocks = ceil_div(bias_columns, kKdaFinishColumns);
  const int block = static_cast<int>(blockIdx.x);
  const bool bias = block < bias_blocks;
  const int columns = bias ? bias_columns : p.dA_log == nullptr ? 0 : p.value_heads;
  const int column = (bias ? block : block - bias_blocks) * kKdaFinishColumns + lane;
  const float* from = static_cast<const float*>(bias ? p.bias_sums : p.rate_sums);

  float sum[kSums] = {};
  if (column < columns) {
    for (int slot = warp; slot < p.slots; slot += kSums * kWarps) {
      float each[kSums];
#pragma unroll
      for (int i = 0; i < kSums; ++i) {  // all on their way before the first is added
        const long long at = slot + i * kWarps;
        each[i] = at < p.slots ? load_element(from + at * columns + column) : 0.0f;
      }
#pragma unroll
      for (int i = 0; i < kSums; ++i) sum[i] += each[i];
    }
  }
#pragma unroll
  for (int i = 1; i < kSums; ++i) sum[0] += sum[i];
  sums[32 * warp + lane] = sum[0];
  __syncthreads();  // every warp's sums are there
  if (warp != 0 || column >= columns) return;
  float whole = 0.0f;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) whole += sums[32 * w + lane];
  store_element(static_cast<float*>(bias ? p.ddt_bias : p.dA_log) + column, whole);
}

}  // namespace lathe
