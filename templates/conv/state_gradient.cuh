// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The state tiles of causal_conv1d_bwd: gradients of initial states, and of the rows before a part
// that begins inside a sequence.
#pragma once
#include "conv/backward_thread.cuh"

namespace lathe {

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
    load_history<Config, false>(p, at, row, sequence, position, stage, 0, thread.history);
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

}  // namespace lathe
