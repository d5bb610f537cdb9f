// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// causal_conv1d_update, laid out for few sequences: the formula of causal_conv1d_update.cuh.
//
// The warps of a block take neighbouring channels of one sequence, each with the filter of its own
// channels, so no warp is idle where there are fewer sequences than a block has warps, and no warp
// waits for another: the block has no barrier. A filter is read once for each sequence.
#pragma once
#include "conv/causal_conv1d_update.cuh"

namespace lathe {

// Each warp has [filter][its run of slots].
template <class Config>
struct ConvUpdateRowSmem {
  static constexpr int kFilter = 4 * ConvShape<Config>::kFilterFloats;
  static constexpr int kWarp = kFilter + kConvUpdateSlots<Config>;
  static constexpr int kBytes = Config::kThreads / 32 * kWarp;
};

// Weight and bias of this thread's channels, staged by its warp alone. Channels past the last are
// 0.
template <class Config, int kVector>
__device__ __forceinline__ void load_filter_by_warp(const ConvUpdateParams& p, int channel,
                                                    int lane, float* stage,
                                                    float (&weight)[Config::kWidth][kVector],
                                                    float (&bias)[kVector]) {
  using Element = typename Config::WeightElement;
  using Shape = ConvShape<Config>;
  stage_by_tap<Shape::kWidth, Shape::kChannels>(
      stage,
      conv_state<Shape::kWidth>(static_cast<const Element*>(p.weight), p.channels, 0, channel),
      p.channels - channel, lane, 32);
  if constexpr (Config::kBias) {
    stage_by_tap<1, Shape::kChannels>(stage + Shape::kStateFloats,
                                      static_cast<const Element*>(p.bias) + channel,
                                      p.channels - channel, lane, 32);
  }
  __syncwarp();  // the filter of the warp's channels is staged
#pragma unroll
  for (int i = 0; i < Shape::kWidth; ++i) {
    read_tap(stage + i * Shape::kPitch, lane * kVector, weight[i]);
  }
#pragma unroll
  for (int v = 0; v < kVector; ++v) bias[v] = 0.0f;
  if constexpr (Config::kBias) read_tap(stage + Shape::kStateFloats, lane * kVector, bias);
}

template <class Config>
__device__ void causal_conv1d_update_row(const ConvUpdateParams& p) {
  using Element = typename Config::Element;
  using Shape = ConvShape<Config>;
  constexpr int kBlockChannels = Shape::kWarps * Shape::kChannels;
  extern __shared__ float4 shared[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const unsigned tiles = (p.channels - 1u) / kBlockChannels + 1u;
  const int row = static_cast<int>(blockIdx.x / tiles);
  const int first = static_cast<int>(blockIdx.x % tiles) * kBlockChannels + warp * Shape::kChannels;
  if (first >= p.channels) return;

  char* warp_memory = reinterpret_cast<char*>(shared) + warp * ConvUpdateRowSmem<Config>::kWarp;
  ConvUpdateRow<Config> own;
  own.slots = reinterpret_cast<Element*>(warp_memory + ConvUpdateRowSmem<Config>::kFilter);
  own.fetch(p, row, first, lane);
  copy_async_commit();
  float weight[Shape::kWidth][Shape::kVector], bias[Shape::kVector];
  load_filter_by_warp<Config>(p, first, lane, reinterpret_cast<float*>(warp_memory), weight, bias);
  copy_async_wait<0>();
  __syncwarp();  // the run of slots is there
  own.step(p, row, first, lane, weight, bias);
  __syncwarp();  // all lanes have rolled theirs
  copy_out(own.state, own.slots, own.count, lane);
}

}  // namespace lathe
