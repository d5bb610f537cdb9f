// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// causal_conv1d_update: one token per sequence, the state rolled in place.
//
//   state[s] <- state[s + 1] for s < W - 1,  state[W - 1] <- x
//   y = act(bias + sum_i weight[i] state[i]) + residual
//
// Bitwise the forward's result for the same tokens: same filter, same order. One warp takes one
// sequence and 32 * kVector channels; the warps of a block take neighbouring sequences, so one
// staged filter serves all. The warp's slots are one contiguous run of memory that goes through
// shared memory whole, whatever the width: no access with a stride of W.
#pragma once
#include "conv/window.cuh"
#include "params/conv.h"

namespace lathe {

// [filter][one run of slots per warp].
template <class Config>
struct ConvUpdateSmem {
  static constexpr int kSlots = 32 * Config::kVectorBytes * Config::kWidth;  // bytes of one warp
  static constexpr int kBytes =
      4 * ConvShape<Config>::kFilterFloats + Config::kThreads / 32 * kSlots;
};

// The step of one thread, for kernels that fuse it: rolls `slots` ([channel][W], shared or local
// memory) by one, puts `x` into the last and gives act(z) of the rolled window.
template <class Config, int kVector>
__device__ __forceinline__ void conv_update_step(const float (&weight)[Config::kWidth][kVector],
                                                 const float (&bias)[kVector],
                                                 const Words<Config::kVectorBytes>& x,
                                                 typename Config::Element* slots,
                                                 float (&result)[kVector]) {
  using Element = typename Config::Element;
  constexpr int kWidth = Config::kWidth;
  float history[kWidth - 1][kVector], current[kVector];
  unpack<Element>(x, current);
#pragma unroll
  for (int v = 0; v < kVector; ++v) {
    // Old slot s + 1 becomes slot s: elements move as they are, whatever their bits.
#pragma unroll
    for (int s = 0; s < kWidth - 1; ++s) {
      const Element slot = slots[v * kWidth + s + 1];
      slots[v * kWidth + s] = slot;
      history[s][v] = to_float(slot);
    }
    slots[v * kWidth + kWidth - 1] = element_of<Element>(x, v);
  }
  conv_filter(weight, bias, history, current, result);
  if constexpr (Config::kSilu) {
#pragma unroll
    for (int v = 0; v < kVector; ++v) result[v] = conv_silu(result[v]);
  }
}

template <class Config>
__device__ void causal_conv1d_update(const ConvUpdateParams& p) {
  using Element = typename Config::Element;
  using Shape = ConvShape<Config>;
  constexpr int kWidth = Shape::kWidth, kVector = Shape::kVector;
  extern __shared__ float4 shared[];
  float* filter = reinterpret_cast<float*>(shared);
  const int groups = (p.batch - 1) / Shape::kWarps + 1;  // of sequences
  const ConvTile at = conv_tile<Config>(p.channels, 1, 0, groups);
  Element* slots =
      reinterpret_cast<Element*>(reinterpret_cast<char*>(filter + Shape::kFilterFloats) +
                                 at.warp * ConvUpdateSmem<Config>::kSlots);
  float weight[kWidth][kVector], bias[kVector];
  load_filter<Config>(p, at, filter, weight, bias);

  const int row = at.tile * Shape::kWarps + at.warp;
  if (row >= p.batch) return;
  const int count = minimum(Shape::kChannels, p.channels - at.block_channel) * kWidth;
  Element* state = static_cast<Element*>(p.state) + row * p.state_stride +
                   static_cast<long long>(at.block_channel) * kWidth;
  copy_in(slots, state, count, at.lane);
  __syncwarp();  // the run of slots is there
  if (at.channel < p.channels) {
    Words<Config::kVectorBytes> x;
    float result[kVector];
    load_global(static_cast<const Element*>(p.x) + row * p.x_stride + at.channel, x);
    conv_update_step<Config>(weight, bias, x, slots + at.lane * kVector * kWidth, result);
    if constexpr (Config::kResidual) {
      Words<Config::kVectorBytes> raw;
      float added[kVector];
      load_global(static_cast<const Element*>(p.residual) + row * p.residual_stride + at.channel,
                  raw);
      unpack<Element>(raw, added);
#pragma unroll
      for (int v = 0; v < kVector; ++v) result[v] = __fadd_rn(result[v], added[v]);
    }
    store_global(static_cast<Element*>(p.y) + row * p.y_stride + at.channel,
                 pack<Element, Config::kVectorBytes>(result));
  }
  __syncwarp();  // all lanes have rolled theirs
  copy_out(state, slots, count, at.lane);
}

}  // namespace lathe
