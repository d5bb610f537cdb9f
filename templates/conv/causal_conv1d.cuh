// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// causal_conv1d: depthwise causal convolution of width W over tokens, channel by channel.
//
//   hist[t] = x[t] for t >= 0,  initial_state[d, W + t] for t < 0 (0 without one)
//   z[t]    = bias[d] + sum_{i=0}^{W-1} weight[d, i] hist[t - (W - 1) + i]
//   y[t]    = act(z[t]) + residual[t]                       act: identity or z sigmoid(z)
//   final_state[d, s] = hist[T - W + s]
//
// The semantics are those of Dao-AILab/causal-conv1d with W state slots in place of W - 1. Tiles
// are described in conv/window.cuh; re-reading W - 1 rows per kTokens tokens is the whole overhead.
#pragma once
#include "conv/window.cuh"
#include "params/conv.h"

namespace lathe {

// [weights][one staged state per warp]: the second part only where states are read or written.
template <class Config>
struct ConvForwardSmem {
  static constexpr int kStates =
      Config::kInitialState || Config::kFinalState ? ConvShape<Config>::kWarps : 0;
  static constexpr int kBytes =
      4 * (ConvShape<Config>::kFilterFloats + kStates * ConvShape<Config>::kStateFloats);
};

// One run of tokens inside one sequence: [position, stop), the window already loaded. Rows are
// loaded kAhead tokens before their use, into the registers that the row before them has left.
template <class Config, int kVector>
__device__ __forceinline__ void conv_run(const ConvForwardParams& p, const ConvTile& at,
                                         int position, int stop,
                                         const float (&weight)[Config::kWidth][kVector],
                                         const float (&bias)[kVector],
                                         float (&history)[Config::kWidth - 1][kVector]) {
  using Element = typename Config::Element;
  constexpr int kAhead = 4;
  const long long offset = position - p.begin;
  const Element* x = conv_x<Element>(p, at.row, position) + at.channel;
  const Element* residual = static_cast<const Element*>(p.residual) +
                            at.row * p.residual_batch_stride + offset * p.residual_token_stride +
                            at.channel;
  Element* y = static_cast<Element*>(p.y) + at.row * p.y_batch_stride + offset * p.y_token_stride +
               at.channel;

  Words<Config::kVectorBytes> rows[kAhead], residual_rows[kAhead];
  const auto fetch = [&](int slot) {
    load_global(x, rows[slot]);
    x += p.x_token_stride;
    if constexpr (Config::kResidual) {
      load_global(residual, residual_rows[slot]);
      residual += p.residual_token_stride;
    }
  };
  int left = at.channel < p.channels ? stop - position : 0;
#pragma unroll
  for (int g = 0; g < kAhead; ++g) {
    if (g < left) fetch(g);
  }
  for (; left > 0; left -= kAhead) {
#pragma unroll
    for (int g = 0; g < kAhead; ++g) {
      if (g < left) {
        float current[kVector], added[kVector], z[kVector];
        unpack<Element>(rows[g], current);
        if constexpr (Config::kResidual) unpack<Element>(residual_rows[g], added);
        if (g + kAhead < left) fetch(g);
        conv_filter(weight, bias, history, current, z);
        shift_in(history, current);
#pragma unroll
        for (int v = 0; v < kVector; ++v) {
          if constexpr (Config::kSilu) z[v] = silu(z[v]);
          if constexpr (Config::kResidual) z[v] = __fadd_rn(z[v], added[v]);
        }
        store_global(y, pack<Element, Config::kVectorBytes>(z));
        y += p.y_token_stride;
      }
    }
  }
}

// y of the padding [position, stop), which is 0 with a residual too.
template <class Config>
__device__ __forceinline__ void conv_zero_rows(const ConvForwardParams& p, const ConvTile& at,
                                               int position, int stop) {
  using Element = typename Config::Element;
  if (at.channel >= p.channels) return;
  Element* y = static_cast<Element*>(p.y) + at.row * p.y_batch_stride +
               static_cast<long long>(position - p.begin) * p.y_token_stride + at.channel;
  for (; position < stop; ++position, y += p.y_token_stride) {
    store_global(y, Words<Config::kVectorBytes>{});
  }
}

// final_state of one sequence by one warp: exact copies, turned from rows of channels into rows of
// slots in shared memory so that both sides are contiguous.
template <class Config>
__device__ __forceinline__ void conv_final_state(const ConvForwardParams& p, const ConvTile& at,
                                                 int index, typename Config::Element* stage) {
  using Element = typename Config::Element;
  constexpr int kWidth = Config::kWidth;
  const Sequence sequence = conv_sequence_at<Config>(p, index);
  if (!conv_owns(p, sequence.end > sequence.start ? sequence.end - 1 : sequence.start)) return;
  const int row = Config::kPacked ? 0 : index;
  const bool earlier = Config::kHalo && sequence.start < p.begin;
  const int count = minimum(ConvShape<Config>::kChannels, p.channels - at.block_channel);
  const Element* initial = nullptr;
  if constexpr (Config::kInitialState) {
    initial = conv_state<kWidth>(static_cast<const Element*>(p.initial_state), p.channels, index,
                                 at.block_channel);
  }
#pragma unroll 1
  for (int slot = 0; slot < kWidth; ++slot) {
    const int since = sequence.end - sequence.start - kWidth + slot;  // from the start
    const int position = sequence.start + since;
    const bool tokens = since >= 0 || earlier;
    const Element* from = nullptr;
    if (tokens) {
      const bool local = !Config::kHalo || position >= p.begin;
      from = (local ? conv_x<Element>(p, row, position) : conv_halo<Config>(p, row, position)) +
             at.block_channel;
    }
    for (int c = at.lane; c < count; c += 32) {
      Element value{};
      if (tokens) {
        value = load_element(from + c);
      } else if (Config::kInitialState) {
        value = load_element(initial + c * kWidth + kWidth + since);
      }
      stage[c * kWidth + slot] = value;
    }
  }
  __syncwarp();  // every slot is staged
  copy_out(
      conv_state<kWidth>(static_cast<Element*>(p.final_state), p.channels, index, at.block_channel),
      stage, count * kWidth, at.lane);
}

template <class Config>
__device__ void causal_conv1d(const ConvForwardParams& p) {
  using Shape = ConvShape<Config>;
  extern __shared__ float4 shared[];
  float* stage = reinterpret_cast<float*>(shared);
  const ConvTile at = conv_tile<Config>(p.channels, p.batch, p.first_tile, p.tiles);
  float* state_stage = stage + Shape::kFilterFloats + at.warp * Shape::kStateFloats;
  if (at.state) {
    if constexpr (Config::kFinalState) {
      const int index = at.tile * Shape::kWarps + at.warp;
      if (index < p.sequences) {
        conv_final_state<Config>(p, at, index,
                                 reinterpret_cast<typename Config::Element*>(state_stage));
      }
    }
    return;
  }

  float weight[Shape::kWidth][Shape::kVector], bias[Shape::kVector];
  load_filter<Config>(p, at, stage, weight, bias);

  const ConvTokens tokens = conv_tokens<Config>(at, p.begin, p.end);
  int position = tokens.first;
  while (position < tokens.last) {  // once per sequence that has tokens here
    const Sequence sequence = conv_sequence<Config>(p, at.row, position);
    if (conv_is_padding<Config>(p, sequence)) {
      conv_zero_rows<Config>(p, at, position, tokens.last);
      break;
    }
    const int stop = minimum(tokens.last, sequence.end);
    float history[Shape::kWidth - 1][Shape::kVector];
    load_history<Config>(p, at, at.row, sequence, position, state_stage, history);
    conv_run<Config>(p, at, position, stop, weight, bias, history);
    position = stop;
  }
}

}  // namespace lathe
