// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// causal_conv1d_weight_grad: the second pass of the weight gradient.
//
//   dweight[d, i] = sum over tiles of partials[tile, i, d]        dbias[d] = row W of the same
//
// A block owns 32 channels. Each warp adds a consecutive share of the tiles, lanes over channels;
// then the warps' sums are added in their order. No atomics: the order depends on the number of
// tiles alone, so repeated runs agree to the last bit.
//
// kByTap: the result stays float32 rows of channels, dweight as [W, D] and dbias as [D], to be
// added over ranks; with dbias right behind dweight it is one more partial, which this kernel then
// casts.
#pragma once
#include "common/copy.cuh"
#include "common/math.cuh"
#include "common/types.cuh"
#include "params/conv.h"

namespace lathe {

// [warps][W + 1][pitch]: the pitch keeps the transposed reads of dweight's rows apart.
template <class Config>
struct ConvWeightGradSmem {
  static constexpr int kPitch = tap_pitch(Config::kWidth, 32);
  static constexpr int kBytes = 4 * (Config::kThreads / 32) * (Config::kWidth + 1) * kPitch;
};

template <class Config>
__device__ void causal_conv1d_weight_grad(const ConvWeightGradParams& p) {
  using Output = typename Config::Output;
  constexpr int kWidth = Config::kWidth, kRows = kWidth + (Config::kBias ? 1 : 0);
  constexpr int kWarps = Config::kThreads / 32, kPitch = ConvWeightGradSmem<Config>::kPitch;
  extern __shared__ float4 shared[];
  float* sums = reinterpret_cast<float*>(shared);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int block_channel = blockIdx.x * 32;
  const int count = minimum(32, p.channels - block_channel);

  // This warp's tiles: [first, last).
  const int share = p.tiles / kWarps, more = p.tiles % kWarps;
  const int first = warp * share + minimum(warp, more);
  const int last = first + share + (warp < more ? 1 : 0);
  float sum[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) sum[i] = 0.0f;
  if (lane < count) {
    const float* from = static_cast<const float*>(p.partials) + block_channel + lane +
                        static_cast<long long>(first) * (kWidth + 1) * p.channels;
#pragma unroll 4
    for (int tile = first; tile < last; ++tile) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        sum[i] = __fadd_rn(sum[i], load_element(from + static_cast<long long>(i) * p.channels));
      }
      from += static_cast<long long>(kWidth + 1) * p.channels;
    }
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i) sums[(warp * (kWidth + 1) + i) * kPitch + lane] = sum[i];
  __syncthreads();  // all warps' sums are there

  for (int e = threadIdx.x; e < kRows * 32; e += Config::kThreads) {
    // In the order of memory: [D, W] for dweight, then dbias; or rows of channels.
    const bool bias = e >= kWidth * 32;
    const int tap = bias ? kWidth : Config::kByTap ? e / 32 : e % kWidth;
    const int c = bias || Config::kByTap ? e % 32 : e / kWidth;
    if (c >= count) continue;
    float total = 0.0f;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      total = __fadd_rn(total, sums[(w * (kWidth + 1) + tap) * kPitch + c]);
    }
    const long long channel = block_channel + c;
    if (bias) {
      if (p.dbias != nullptr) {
        store_element(static_cast<Output*>(p.dbias) + channel, from_float<Output>(total));
      }
    } else {
      const long long at = Config::kByTap ? static_cast<long long>(tap) * p.channels + channel
                                          : channel * kWidth + tap;
      store_element(static_cast<Output*>(p.dweight) + at, from_float<Output>(total));
    }
  }
}

}  // namespace lathe
