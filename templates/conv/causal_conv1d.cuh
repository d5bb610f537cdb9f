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
// are described in conv/window.cuh; re-reading W - 1 rows per run is the whole overhead.
#pragma once
#include "conv/ring.cuh"
#include "conv/window.cuh"
#include "params/conv.h"

namespace lathe {

// [weights][one staged state per warp][a ring of x per warp, and one of the residual]: states only
// where they are read or written.
template <class Config>
struct ConvForwardSmem {
  static constexpr int kStates =
      Config::kInitialState || Config::kFinalState ? ConvShape<Config>::kWarps : 0;
  static constexpr int kRings =
      4 * (ConvShape<Config>::kFilterFloats +
           kStates * ConvShape<Config>::kStateFloats);  // where they begin
  static constexpr int kOfWarp =
      ConvRing<Config>::kBytes * (Config::kResidual ? 2 : 1) + ConvRing<Config>::kBeforeBytes;
  static constexpr int kBytes = kRings + ConvShape<Config>::kWarps * kOfWarp;
};

// A warp's walk: the filter of this thread's channels, the window before the next row, and the rows
// on their way.
template <class Config>
struct ConvForwardWalk {
  static constexpr int kWidth = Config::kWidth;
  static constexpr int kVector = ConvShape<Config>::kVector;
  using Raw = Words<Config::kVectorBytes>;

  float weight[kWidth][kVector], bias[kVector];
  float history[kWidth - 1][kVector];
  ConvStream<Config> x, residual;
  typename Config::Element* y;
  long long y_stride;
  bool active;      // whether this lane has channels
  unsigned before;  // this lane's place in the rows before the first

  __device__ __forceinline__ void fetch(unsigned offset) {
    x.fetch(offset);
    if constexpr (Config::kResidual) residual.fetch(offset);
    copy_async_commit();
  }
  // Row `row` of the group at `offset`: y of one token.
  __device__ __forceinline__ void token(unsigned offset, int row) {
    using Element = typename Config::Element;
    float current[kVector], z[kVector];
    unpack<Element>(x.read(offset, row), current);
    conv_filter(weight, bias, history, current, z);
    shift_in(history, current);
    if constexpr (Config::kSilu) {
#pragma unroll
      for (int v = 0; v < kVector; ++v) z[v] = conv_silu(z[v]);
    }
    if constexpr (Config::kResidual) {
      float added[kVector];
      unpack<Element>(residual.read(offset, row), added);
#pragma unroll
      for (int v = 0; v < kVector; ++v) z[v] = __fadd_rn(z[v], added[v]);
    }
    store_where(active, y, pack<Element, Config::kVectorBytes>(z));
    y += y_stride;
  }
};

// The rows of this warp's tokens, the first kGroups groups of them on their way. Lanes without
// channels bring the last ones, and store nothing.
template <class Config>
__device__ __forceinline__ void conv_start(const ConvForwardParams& p, const ConvTile& at,
                                           const ConvTokens& tokens, char* ring,
                                           ConvForwardWalk<Config>& walk) {
  using Element = typename Config::Element;
  using Ring = ConvRing<Config>;
  using Smem = ConvForwardSmem<Config>;
  const long long offset = tokens.first - p.begin;
  walk.active = at.channel < p.channels;
  const int from = minimum(at.channel, p.channels - ConvShape<Config>::kVector);
  const int rows = tokens.last - tokens.first;
  const unsigned shared =
      static_cast<unsigned>(__cvta_generic_to_shared(ring)) + at.lane * Config::kVectorBytes;
  walk.x = {conv_x<Element>(p, at.row, tokens.first) + from, p.x_token_stride, rows, shared};
  if constexpr (Config::kResidual) {
    walk.residual = {static_cast<const Element*>(p.residual) + at.row * p.residual_batch_stride +
                         offset * p.residual_token_stride + from,
                     p.residual_token_stride, rows, shared + Ring::kBytes};
  }
  walk.y = static_cast<Element*>(p.y) + at.row * p.y_batch_stride + offset * p.y_token_stride +
           at.channel;
  walk.y_stride = p.y_token_stride;
  walk.before = shared + Smem::kOfWarp - Ring::kBeforeBytes;
  if (rows > 0) {
    fetch_before<Config>(walk.before, walk.x.next, p.x_token_stride, tokens.first - p.begin);
  }
#pragma unroll 1
  for (int g = 0; g < Ring::kGroups; ++g) walk.fetch(g * Ring::kGroupBytes);
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

// All tokens of this warp. Once per sequence that has tokens here the window is loaded; a group of
// rows inside one sequence is unrolled.
template <class Config>
__device__ __forceinline__ void conv_walk(const ConvForwardParams& p, const ConvTile& at,
                                          const ConvTokens& tokens, float* state_stage,
                                          ConvForwardWalk<Config>& walk) {
  unsigned offset = 0;
  int stop = tokens.first;  // the window is that of a sequence up to here
#pragma unroll 1
  for (int group = tokens.first; group < tokens.last; group += kConvGroup) {
    copy_async_wait<ConvRing<Config>::kGroups - 1>();
    const int rows = minimum(kConvGroup, tokens.last - group);
#pragma unroll 1
    for (int row = 0; row < rows;) {
      const int position = group + row;
      if (position == stop) {
        const Sequence sequence = conv_sequence<Config>(p, at.row, position);
        if (conv_is_padding<Config>(p, sequence)) {
          copy_async_wait<0>();
          conv_zero_rows<Config>(p, at, position, tokens.last);
          return;
        }
        stop = minimum(tokens.last, sequence.end);
        load_history<Config, true>(p, at, at.row, sequence, position, state_stage, walk.before,
                                   walk.history);
      }
      if (row == 0 && group + kConvGroup <= stop) {
#pragma unroll
        for (int g = 0; g < kConvGroup; ++g) walk.token(offset, g);
        row = kConvGroup;
      } else {
        walk.token(offset, row++);
      }
    }
    walk.fetch(offset);
    offset = ring_next<Config>(offset);
  }
  copy_async_wait<0>();
}

template <class Config>
__device__ void causal_conv1d(const ConvForwardParams& p) {
  using Shape = ConvShape<Config>;
  using Smem = ConvForwardSmem<Config>;
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

  // Rows are on their way before anything is waited for.
  const ConvTokens tokens = conv_tokens<Config>(at, p.run, p.begin, p.end);
  ConvForwardWalk<Config> walk;
  conv_start<Config>(p, at, tokens,
                     reinterpret_cast<char*>(shared) + Smem::kRings + at.warp * Smem::kOfWarp,
                     walk);
  load_filter<Config>(p, at, stage, walk.weight, walk.bias);
  conv_walk<Config>(p, at, tokens, state_stage, walk);
}

}  // namespace lathe
