// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// causal_conv1d_bwd: gradients of causal_conv1d (names and formulas of conv/causal_conv1d.cuh).
//
//   dz[t]     = dy[t] s (1 + z[t] (1 - s)), s = sigmoid(z[t])        or dy[t] without activation
//   dx[t]     = sum_i weight[i] dz[t + (W - 1) - i]  within the sequence,  + dfinal_state of t
//   dweight[i]= sum_t dz[t] hist[t - (W - 1) + i],   dbias = sum_t dz[t]     (partial, per tile)
//   dinitial_state[s] = sum_t weight[s - 1 - t] dz[t]  + dfinal_state of the slots it was copied to
//
// z is recomputed from x. A warp walks its tokens forward with two windows in registers: the last
// W - 1 inputs and the W - 1 gradients dx that later tokens still add to, so dx[t - (W - 1)] leaves
// at token t. It walks up to W - 1 tokens past its run for the gradients of its last ones. The part
// of dx and dinitial_state that tokens of later ranks contribute comes from them (dhalo here).
#pragma once
#include "conv/window.cuh"
#include "params/conv.h"

namespace lathe {

// While tokens are walked: [filter][one staged state per warp]. Then, in the same place, the sums
// of each warp: [warps][W + 1][channels].
// Gradients of initial states have the type of states, or are float32 where ranks add to them.
template <class Config, class = void>
struct ConvStateGrad {
  using Type = typename Config::Element;
};
template <class Config>
struct ConvStateGrad<Config, decltype(static_cast<void>(Config::kWideStates))> {
  using Type = float;
};

template <class Config>
struct ConvBackwardSmem {
  using Shape = ConvShape<Config>;
  static constexpr bool kUsesStates =
      Config::kInitialState || Config::kDfinalState || Config::kDinitialState;
  static constexpr int kWalk =
      4 * (Shape::kFilterFloats + (kUsesStates ? Shape::kWarps * Shape::kStateFloats : 0));
  static constexpr int kSums =
      Config::kWeightGrad ? 4 * Shape::kWarps * (Shape::kWidth + 1) * Shape::kChannels : 0;
  static constexpr int kBytes = kWalk > kSums ? kWalk : kSums;
};

// The float32 registers of one thread.
template <class Config>
struct ConvBackwardThread {
  static constexpr int kWidth = Config::kWidth;
  static constexpr int kVector = ConvShape<Config>::kVector;
  static constexpr bool kReadsX = Config::kSilu || Config::kWeightGrad;
  float weight[kWidth][kVector], bias[kVector];
  float history[kWidth - 1][kVector];  // inputs at t - (W - 1) .. t - 1
  float pending[kWidth - 1][kVector];  // dx of the same positions, so far
  float dweight[kWidth][kVector], dbias[kVector];
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
    if constexpr (Config::kSilu) dz[v] = __fmul_rn(dy[v], silu_derivative(z[v]));
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

// dx of the padding [position, stop) is 0. As dx leaves W - 1 tokens late, these rows send off
// those of the sequence before them; nothing here enters the weights' gradient, and dy is not read.
template <class Config>
__device__ __forceinline__ void conv_pad_bwd(const ConvBackwardParams& p, const ConvTile& at,
                                             int position, const ConvTokens& tokens,
                                             ConvBackwardThread<Config>& thread) {
  using Element = typename Config::Element;
  constexpr int kWidth = Config::kWidth, kVector = ConvShape<Config>::kVector;
  if (!Config::kDx || at.channel >= p.channels) return;
  Element* dx = static_cast<Element*>(p.dx) + at.row * p.dx_batch_stride +
                static_cast<long long>(position - p.begin - (kWidth - 1)) * p.dx_token_stride +
                at.channel;
  for (; position < tokens.last; ++position, dx += p.dx_token_stride) {
    if (position - tokens.first >= kWidth - 1) {
      store_global(dx, pack<Element, Config::kVectorBytes>(thread.pending[0]));
    }
    const float nothing[kVector] = {};
    shift_in(thread.pending, nothing);
  }
}

// dz[t] reaches dx[t - (W - 1) + i] by weight[i], inside the sequence: t is its token `since`. The
// newest position begins with the gradient of the final state's slot that it was copied to, if any.
template <class Config, int kVector>
__device__ __forceinline__ void conv_scatter(ConvBackwardThread<Config>& thread,
                                             const float (&dz)[kVector], int since,
                                             const float* dfinal, int lane,
                                             float (&newest)[kVector]) {
  constexpr int kWidth = Config::kWidth;
#pragma unroll
  for (int i = 0; i < kWidth - 1; ++i) {
    if (!Config::kPacked || since >= kWidth - 1 - i) {
#pragma unroll
      for (int v = 0; v < kVector; ++v) {
        thread.pending[i][v] = __fmaf_rn(thread.weight[i][v], dz[v], thread.pending[i][v]);
      }
    }
  }
#pragma unroll
  for (int v = 0; v < kVector; ++v) newest[v] = __fmul_rn(thread.weight[kWidth - 1][v], dz[v]);
  if constexpr (Config::kDfinalState) {
    if (dfinal != nullptr) {
      float added[kVector];
      read_tap(dfinal, lane * kVector, added);
#pragma unroll
      for (int v = 0; v < kVector; ++v) newest[v] = __fadd_rn(newest[v], added[v]);
    }
  }
}

// This token's share of the weights' gradient.
template <class Config, int kVector>
__device__ __forceinline__ void conv_accumulate(ConvBackwardThread<Config>& thread,
                                                const float (&dz)[kVector],
                                                const float (&x)[kVector]) {
  constexpr int kLast = Config::kWidth - 1;
#pragma unroll
  for (int v = 0; v < kVector; ++v) {
#pragma unroll
    for (int i = 0; i < kLast; ++i) {
      thread.dweight[i][v] = __fmaf_rn(dz[v], thread.history[i][v], thread.dweight[i][v]);
    }
    thread.dweight[kLast][v] = __fmaf_rn(dz[v], x[v], thread.dweight[kLast][v]);
    thread.dbias[v] = __fadd_rn(thread.dbias[v], dz[v]);
  }
}

// Walks [position, stop) of one sequence. Tokens from tokens.last on belong to the next run and
// only complete pending gradients; dx is written from tokens.first on. `dfinal` is the staged
// gradient of the final state, null where the sequence does not end in this part.
template <class Config>
__device__ __forceinline__ void conv_run_bwd(const ConvBackwardParams& p, const ConvTile& at,
                                             const Sequence& sequence, int position, int stop,
                                             const ConvTokens& tokens, const float* dfinal,
                                             ConvBackwardThread<Config>& thread) {
  using Element = typename Config::Element;
  using Shape = ConvShape<Config>;
  using Thread = ConvBackwardThread<Config>;
  constexpr int kWidth = Shape::kWidth, kVector = Shape::kVector;
  constexpr int kAhead = kWidth > 4 ? 2 : 4;  // rows in flight per thread, of x and of dy
  const Element* x = nullptr;
  if constexpr (Thread::kReadsX) x = conv_x<Element>(p, at.row, position) + at.channel;
  const long long offset = position - p.begin;
  const Element* dy = static_cast<const Element*>(p.dy) + at.row * p.dy_batch_stride +
                      offset * p.dy_token_stride + at.channel;
  Element* dx = static_cast<Element*>(p.dx) + at.row * p.dx_batch_stride +
                (offset - (kWidth - 1)) * p.dx_token_stride + at.channel;

  Words<Config::kVectorBytes> x_rows[kAhead], dy_rows[kAhead];
  // Without activation x is needed for the weights' gradient alone, which ends at `last`.
  const int x_stop = Config::kSilu ? stop : minimum(stop, tokens.last);
  const auto fetch = [&](int slot, int at) {
    if constexpr (Thread::kReadsX) {
      if (at < x_stop) load_global(x, x_rows[slot]);
      x += p.x_token_stride;
    }
    load_global(dy, dy_rows[slot]);
    dy += p.dy_token_stride;
  };
  int left = at.channel < p.channels ? stop - position : 0;
#pragma unroll
  for (int g = 0; g < kAhead; ++g) {
    if (g < left) fetch(g, position + g);
  }
  for (; left > 0; left -= kAhead, position += kAhead) {
#pragma unroll
    for (int g = 0; g < kAhead; ++g) {
      if (g < left) {
        const int t = position + g;
        float current[kVector], upstream[kVector], dz[kVector], fresh[kVector];
#pragma unroll
        for (int v = 0; v < kVector; ++v) current[v] = 0.0f;
        if constexpr (Thread::kReadsX) {
          if (t < x_stop) unpack<Element>(x_rows[g], current);
        }
        unpack<Element>(dy_rows[g], upstream);
        if (g + kAhead < left) fetch(g, t + kAhead);
        conv_dz<Config>(thread, current, upstream, dz);

        const float* slots = nullptr;
        if constexpr (Config::kDfinalState) {
          const int slot = t - (sequence.end - kWidth);
          if (slot >= 0 && dfinal != nullptr) slots = dfinal + slot * Shape::kPitch;
        }
        conv_scatter<Config>(thread, dz, t - sequence.start, slots, at.lane, fresh);
        if (Config::kDx && t - tokens.first >= kWidth - 1) {
          store_global(dx, pack<Element, Config::kVectorBytes>(thread.pending[0]));
        }
        dx += p.dx_token_stride;
        shift_in(thread.pending, fresh);
        if constexpr (Config::kWeightGrad) {
          if (t < tokens.last) conv_accumulate<Config>(thread, dz, current);
        }
        if constexpr (Thread::kReadsX) shift_in(thread.history, current);
      }
    }
  }
}

// Gradients of the W slots before `position`, where `sequence` begins or enters this part:
// gradient[s], zero so far, belongs to position - W + s. `stage` is this warp's shared tile.
template <class Config, int kVector>
__device__ __forceinline__ void conv_slot_gradients(const ConvBackwardParams& p, const ConvTile& at,
                                                    int row, const Sequence& sequence, int position,
                                                    float* stage,
                                                    ConvBackwardThread<Config>& thread,
                                                    float (&gradient)[Config::kWidth][kVector]) {
  using Element = typename Config::Element;
  constexpr int kWidth = Config::kWidth;
  const bool active = at.channel < p.channels;
  const int length = sequence.end - position;
  const int steps = minimum(minimum(kWidth - 1, length), p.end - position);
  if (Config::kSilu && steps > 0) {
    load_history<Config>(p, at, row, sequence, position, stage, thread.history);
  }
#pragma unroll
  for (int t = 0; t < kWidth - 1; ++t) {
    if (t < steps && active) {
      Words<Config::kVectorBytes> raw;
      float current[kVector], upstream[kVector], dz[kVector];
#pragma unroll
      for (int v = 0; v < kVector; ++v) current[v] = 0.0f;
      if constexpr (Config::kSilu) {
        load_global(conv_x<Element>(p, row, position + t) + at.channel, raw);
        unpack<Element>(raw, current);
      }
      const Element* dy = static_cast<const Element*>(p.dy) + row * p.dy_batch_stride +
                          (position + t - p.begin) * p.dy_token_stride + at.channel;
      load_global(dy, raw);
      unpack<Element>(raw, upstream);
      conv_dz<Config>(thread, current, upstream, dz);
      if constexpr (Config::kSilu) shift_in(thread.history, current);
#pragma unroll
      for (int s = t + 1; s < kWidth; ++s) {
#pragma unroll
        for (int v = 0; v < kVector; ++v) {
          gradient[s][v] = __fmaf_rn(thread.weight[s - 1 - t][v], dz[v], gradient[s][v]);
        }
      }
    }
  }
  if constexpr (Config::kDfinalState) {
    if (length < kWidth && sequence.end <= p.end && sequence.index < p.sequences) {
      stage_dfinal<Config>(p, at, sequence.index, stage);
#pragma unroll
      for (int s = 0; s < kWidth; ++s) {
        if (s >= length) {  // the final state's slot s - length is a copy of this one
          float added[kVector];
          read_tap(stage + (s - length) * ConvShape<Config>::kPitch, at.lane * kVector, added);
#pragma unroll
          for (int v = 0; v < kVector; ++v) gradient[s][v] = __fadd_rn(gradient[s][v], added[v]);
        }
      }
    }
  }
}

// A state tile's share of one warp: dinitial_state of sequence `item`, turned through shared memory
// into rows of slots; after the sequences, dhalo of row `item` of the batch: what this part's first
// sequence owes to the W - 1 positions before `begin`, zeros if it did not begin earlier.
template <class Config>
__device__ __forceinline__ void conv_state_gradient(const ConvBackwardParams& p, const ConvTile& at,
                                                    int item, float* stage,
                                                    ConvBackwardThread<Config>& thread) {
  constexpr int kWidth = Config::kWidth, kVector = ConvShape<Config>::kVector;
  bool halo = Config::kHalo, empty = true;
  int row = item, position = p.begin;
  Sequence sequence{0, 0, 0};
  if (Config::kDinitialState && item < p.sequences) {
    halo = false;
    row = Config::kPacked ? 0 : item;
    sequence = conv_sequence_at<Config>(p, item);
    if (!conv_owns(p, sequence.start)) return;
    position = sequence.start;
    empty = false;
  } else {
    row -= Config::kDinitialState ? p.sequences : 0;
    if (!halo || row >= p.batch) return;
    if (p.begin < p.end) {
      sequence = conv_sequence<Config>(p, row, p.begin);
      empty = sequence.start >= p.begin;
    }
  }
  float gradient[kWidth][kVector];
#pragma unroll
  for (int s = 0; s < kWidth; ++s) {
#pragma unroll
    for (int v = 0; v < kVector; ++v) gradient[s][v] = 0.0f;
  }
  if (!empty) {
    conv_slot_gradients<Config>(p, at, row, sequence, position, stage, thread, gradient);
  }
  if (halo) {
#pragma unroll
    for (int h = 0; h < kWidth - 1; ++h) {
      float* to = static_cast<float*>(p.dhalo) +
                  (static_cast<long long>(h) * p.batch + row) * p.channels + at.channel;
      if (at.channel < p.channels) store_global(to, pack<float, 4 * kVector>(gradient[h + 1]));
    }
    return;
  }
  __syncwarp();  // staged gradients of the final state have been read
  using Slot = typename ConvStateGrad<Config>::Type;
  Slot* slots = reinterpret_cast<Slot*>(stage);
#pragma unroll
  for (int v = 0; v < kVector; ++v) {
#pragma unroll
    for (int s = 0; s < kWidth; ++s) {
      slots[(at.lane * kVector + v) * kWidth + s] = from_float<Slot>(gradient[s][v]);
    }
  }
  __syncwarp();  // every slot is there
  const int count = minimum(ConvShape<Config>::kChannels, p.channels - at.block_channel);
  copy_out(
      conv_state<kWidth>(static_cast<Slot*>(p.dinitial_state), p.channels, item, at.block_channel),
      slots, count * kWidth, at.lane);
}

// Adds the warps' sums in their order and writes one row of partials, contiguous over channels.
template <class Config>
__device__ __forceinline__ void conv_write_partials(const ConvBackwardParams& p, const ConvTile& at,
                                                    float* sums,
                                                    const ConvBackwardThread<Config>& thread) {
  using Shape = ConvShape<Config>;
  constexpr int kWidth = Shape::kWidth, kVector = Shape::kVector, kChannels = Shape::kChannels;
  constexpr int kRows = kWidth + (Config::kBias ? 1 : 0);
  __syncthreads();  // filter and staged states have been read by all warps
  float* mine = sums + at.warp * (kWidth + 1) * kChannels + at.lane * kVector;
#pragma unroll
  for (int v = 0; v < kVector; ++v) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) mine[i * kChannels + v] = thread.dweight[i][v];
    mine[kWidth * kChannels + v] = thread.dbias[v];
  }
  __syncthreads();  // all warps' sums are there
  const int count = minimum(kChannels, p.channels - at.block_channel);
  float* partials =
      static_cast<float*>(p.partials) +
      (static_cast<long long>(at.row) * p.all_tiles + at.tile) * (kWidth + 1) * p.channels +
      at.block_channel;
  for (int i = threadIdx.x; i < kRows * kChannels; i += Config::kThreads) {
    const int tap = i / kChannels, c = i % kChannels;
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < Shape::kWarps; ++w) {
      sum = __fadd_rn(sum, sums[(w * (kWidth + 1) + tap) * kChannels + c]);
    }
    if (c < count) store_element(partials + static_cast<long long>(tap) * p.channels + c, sum);
  }
}

// dx and the sums of this warp's tokens.
template <class Config>
__device__ __forceinline__ void conv_walk_bwd(const ConvBackwardParams& p, const ConvTile& at,
                                              float* stage, ConvBackwardThread<Config>& thread) {
  using Element = typename Config::Element;
  using Shape = ConvShape<Config>;
  constexpr int kWidth = Shape::kWidth;
  const ConvTokens tokens = conv_tokens<Config>(at, p.begin, p.end);
  int position = tokens.first;
  while (position < tokens.last) {  // once per sequence that has tokens here
    const Sequence sequence = conv_sequence<Config>(p, at.row, position);
    if (conv_is_padding<Config>(p, sequence)) {
      conv_pad_bwd<Config>(p, at, position, tokens, thread);
      position = tokens.last;
      break;
    }
    int stop = minimum(sequence.end, tokens.last);
    if (Config::kDx && sequence.end > tokens.last) {
      stop += minimum(kWidth - 1, minimum(sequence.end, p.end) - tokens.last);
    }
    if constexpr (ConvBackwardThread<Config>::kReadsX) {
      load_history<Config>(p, at, at.row, sequence, position, stage, thread.history);
    }
    const float* dfinal = nullptr;
    if constexpr (Config::kDfinalState) {
      if (stop > sequence.end - kWidth && sequence.end <= p.end && sequence.index < p.sequences) {
        stage_dfinal<Config>(p, at, sequence.index, stage);
        dfinal = stage;
      }
    }
    conv_run_bwd<Config>(p, at, sequence, position, stop, tokens, dfinal, thread);
    position = stop;
  }
  // The last W - 1 gradients: pending[i] belongs to position - (W - 1) + i.
#pragma unroll
  for (int i = 0; i < kWidth - 1; ++i) {
    const int t = position - (kWidth - 1) + i;
    if (Config::kDx && t >= tokens.first && t < tokens.last && at.channel < p.channels) {
      Element* dx = static_cast<Element*>(p.dx) + at.row * p.dx_batch_stride +
                    (t - p.begin) * p.dx_token_stride + at.channel;
      store_global(dx, pack<Element, Config::kVectorBytes>(thread.pending[i]));
    }
  }
}

template <class Config>
__device__ void causal_conv1d_bwd(const ConvBackwardParams& p) {
  using Shape = ConvShape<Config>;
  constexpr int kWidth = Shape::kWidth, kVector = Shape::kVector;
  extern __shared__ float4 shared[];
  float* filter = reinterpret_cast<float*>(shared);
  const ConvTile at = conv_tile<Config>(p.channels, p.batch, p.first_tile, p.tiles);
  float* stage = filter + Shape::kFilterFloats + at.warp * Shape::kStateFloats;
  ConvBackwardThread<Config> thread;
  load_filter<Config>(p, at, filter, thread.weight, thread.bias);

  if (at.state) {
    if constexpr (Config::kDinitialState || Config::kHalo) {
      const int item = at.tile * Shape::kWarps + at.warp;
      conv_state_gradient<Config>(p, at, item, stage, thread);
    }
    return;
  }
#pragma unroll
  for (int v = 0; v < kVector; ++v) {
#pragma unroll
    for (int i = 0; i < kWidth - 1; ++i) thread.history[i][v] = thread.pending[i][v] = 0.0f;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) thread.dweight[i][v] = 0.0f;
    thread.dbias[v] = 0.0f;
  }
  conv_walk_bwd<Config>(p, at, stage, thread);
  if constexpr (Config::kWeightGrad) conv_write_partials<Config>(p, at, filter, thread);
}

}  // namespace lathe
