// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda_backward_finish: the gradients of A_log and dt_bias are sums over the slots of chunks,
//
//   dA_log[hv] = sum_s rate_sums[s, hv]      ddt_bias[hv, d] = sum_s bias_sums[s, hv, d]
//
// in one order, so that they repeat bit for bit. A block owns 32 columns of one of the two; each of
// its warps adds up every so manieth slot, a row of 128 bytes at a time, and then one adds up the
// warps. Blocks of ddt_bias come first.
#pragma once
#include "common/types.cuh"
#include "params/kda_chunked.h"

namespace lathe {

template <class Config>
__device__ void kda_backward_finish(const KdaBackwardFinishParams& p) {
  constexpr int kWarps = Config::kThreads / 32, kAhead = 4;
  __shared__ float sums[kWarps][32];
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const long long biases =
      p.ddt_bias != nullptr ? static_cast<long long>(p.value_heads) * p.key_dim : 0;
  const unsigned bias_blocks = static_cast<unsigned>((biases + 31) / 32);
  const bool bias = blockIdx.x < bias_blocks;
  const long long columns = bias ? biases : p.value_heads;
  const long long column =
      static_cast<long long>(bias ? blockIdx.x : blockIdx.x - bias_blocks) * 32 + lane;
  const float* from = static_cast<const float*>(bias ? p.bias_sums : p.rate_sums) + column;

  float part[kAhead] = {};
  if (column < columns) {
    for (int slot = warp; slot < p.slots; slot += kAhead * kWarps) {
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {  // loads that do not wait for each other
        const int own = slot + i * kWarps;
        if (own < p.slots) part[i] += load_element(from + own * columns);
      }
    }
  }
  sums[warp][lane] = (part[0] + part[1]) + (part[2] + part[3]);
  __syncthreads();  // every warp's sums are there
  if (warp != 0 || column >= columns) return;
  float sum = 0.0f;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) sum += sums[w][lane];
  store_element(static_cast<float*>(bias ? p.ddt_bias : p.dA_log) + column, sum);
}

}  // namespace lathe
