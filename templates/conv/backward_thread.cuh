// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What the walk of causal_conv1d_bwd and its gradients of states share: the layout of shared
// memory, the registers of a thread, dz of one token, and staged gradients of final states.
#pragma once
#include "conv/ring.cuh"
#include "conv/window.cuh"
#include "params/conv.h"

namespace lathe {

// Gradients of initial states have the type of states, or are float32 where ranks add to them.
template <class Config, class = void>
struct ConvStateGrad {
  using Type = typename Config::Element;
};
template <class Config>
struct ConvStateGrad<Config, decltype(static_cast<void>(Config::kWideStates))> {
  using Type = float;
};

// While tokens are walked: [filter][one staged state per warp][the rings of each warp, of dy and of
// x]. Then, in the same place, the sums of each warp: [warps][W + 1][channels].
template <class Config>
struct ConvBackwardSmem {
  using Shape = ConvShape<Config>;
  static constexpr bool kUsesStates =
      Config::kInitialState || Config::kDfinalState || Config::kDinitialState;
  static constexpr bool kReadsX = Config::kSilu || Config::kWeightGrad;
  static constexpr int kRings =  // where they begin
      4 * (Shape::kFilterFloats + (kUsesStates ? Shape::kWarps * Shape::kStateFloats : 0));
  static constexpr int kOfWarp =
      ConvRing<Config>::kBytes * (kReadsX ? 2 : 1) + (kReadsX ? ConvRing<Config>::kBeforeBytes : 0);
  static constexpr int kWalk = kRings + Shape::kWarps * kOfWarp;
  static constexpr int kSums =
      Config::kWeightGrad ? 4 * Shape::kWarps * (Shape::kWidth + 1) * Shape::kChannels : 0;
  static constexpr int kBytes = kWalk > kSums ? kWalk : kSums;
};

// The float32 registers of one thread, and its rows on their way.
template <class Config>
struct ConvBackwardThread {
  static constexpr int kWidth = Config::kWidth;
  static constexpr int kVector = ConvShape<Config>::kVector;
  static constexpr bool kReadsX = ConvBackwardSmem<Config>::kReadsX;
  float weight[kWidth][kVector], bias[kVector];
  float history[kWidth - 1][kVector];  // inputs at t - (W - 1) .. t - 1
  float pending[kWidth - 1][kVector];  // dx of the same positions, so far
  float dweight[kWidth][kVector], dbias[kVector];
  ConvStream<Config> x, dy;
  typename Config::Element* dx;  // of the token W - 1 before the next one
  long long dx_stride;
  bool active;      // whether this lane has channels
  unsigned before;  // this lane's place in the inputs before the first

  __device__ __forceinline__ void fetch(unsigned offset) {
    dy.fetch(offset);
    if constexpr (kReadsX) x.fetch(offset);
    copy_async_commit();
  }
};

// dz of one token; x is its input (unused without activation).
template <class Config, int kVector>
__device__ __forceinline__ void conv_dz(const ConvBackwardThread<Config>& thread,
                                        const float (&x)[kVector], const float (&dy)[kVector],
                                        float (&dz)[kVector]) {
  float z[kVector];
  if constexpr (Config::kSilu) conv_filter(thread.weight, thread.bias, thread.history, x, z);
#pragma unroll
  for (int v = 0; v < kVector; ++v) {
    dz[v] = dy[v];
    if constexpr (Config::kSilu) dz[v] = __fmul_rn(dy[v], conv_silu_derivative(z[v]));
  }
}

// Stages dfinal_state of a sequence that ends here, for the whole warp.
template <class Config>
__device__ __forceinline__ void stage_dfinal(const ConvBackwardParams& p, const ConvTile& at,
                                             int sequence, float* stage) {
  using Shape = ConvShape<Config>;
  __syncwarp();  // what was staged before has been read
  stage_by_tap<Shape::kWidth, Shape::kChannels>(
      stage,
      conv_state<Shape::kWidth>(static_cast<const typename Config::Element*>(p.dfinal_state),
                                p.channels, sequence, at.block_channel),
      p.channels - at.block_channel, at.lane, 32);
  __syncwarp();  // all slots are there
}

}  // namespace lathe
