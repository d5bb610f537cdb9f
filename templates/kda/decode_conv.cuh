// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The convolution of kda_decode: the formula of conv/causal_conv1d_update.cuh, with float32 results
// that stay in the block. A thread takes a channel, whose slot it alone reads and writes.
#pragma once
#include "conv/window.cuh"
#include "kda/slots.cuh"
#include "params/kda_decode.h"

namespace lathe {

template <class Config>
struct KdaDecodeConv {
  using Element = typename Config::Element;
  using Weight = typename Config::WeightElement;
  static constexpr int kTaps = Config::kConvWidth, kColumns = Config::kConvColumns;

  const KdaDecodeParams& p;
  const KdaSlots slots;
  const long long batch;
  const int tokens;

  __device__ __forceinline__ const Element* input(int channel) const {
    return static_cast<const Element*>(p.qkv) + batch * p.qkv_batch_stride + channel;
  }
  __device__ __forceinline__ Element* slot(int number, int channel, int column) const {
    return static_cast<Element*>(p.conv_pool) + number * p.conv_slot_stride +
           channel * p.conv_channel_stride + column * p.conv_column_stride;
  }

  // Calls result(t, z) for each token, then rolls the slot.
  template <class Result>
  __device__ __forceinline__ void run(int channel, const Result& result) const {
    const Weight* taps =
        static_cast<const Weight*>(p.conv_weight) + static_cast<long long>(channel) * kTaps;
    float weight[kTaps][1], bias[1] = {}, history[kTaps - 1][1] = {};
#pragma unroll
    for (int i = 0; i < kTaps; ++i) weight[i][0] = to_float(load_element(taps + i));
    if constexpr (Config::kConvBias) {
      bias[0] = to_float(load_element(static_cast<const Weight*>(p.conv_bias) + channel));
    }
    if (slots.from >= 0) {  // plain loads: the grid writes the pool that it reads
      const Element* from = slot(slots.from, channel, kColumns - (kTaps - 1));
#pragma unroll
      for (int i = 0; i < kTaps - 1; ++i) history[i][0] = to_float(from[i * p.conv_column_stride]);
    }
    const Element* x = input(channel);
#pragma unroll 1
    for (int t = 0; t < tokens; ++t) {
      float current[1] = {to_float(load_element(x + t * p.qkv_token_stride))}, z[1];
      conv_filter(weight, bias, history, current, z);
      result(t, Config::kConvSilu ? silu(z[0]) : z[0]);
      shift_in(history, current);
    }
    if (p.state.state_out != nullptr) roll(channel);
  }

  // Columns move left by the tokens, which come behind them: elements move as they are, whatever
  // their bits. In the same slot no column is written before it is read.
  __device__ __forceinline__ void roll(int channel) const {
    if (tokens == 0 && slots.from == slots.to) return;
    const Element* x = input(channel);
    const Element* from = slot(maximum(slots.from, 0), channel, 0);
    Element* to = slot(slots.to, channel, 0);
    const long long step = p.conv_column_stride;
    if constexpr (Config::kTokens == 1 && kColumns <= 16) {
      Element moved[kColumns];
#pragma unroll
      for (int i = 0; i < kColumns - 1; ++i) {
        moved[i] = slots.from >= 0 ? from[(i + 1) * step] : from_float<Element>(0.0f);
      }
      moved[kColumns - 1] = load_element(x);
#pragma unroll
      for (int i = 0; i < kColumns; ++i) store_element(to + i * step, moved[i]);
    } else {
#pragma unroll 1
      for (int i = 0; i < kColumns; ++i) {
        Element moved = from_float<Element>(0.0f);
        const int t = i + tokens - kColumns;
        if (t >= 0) {
          moved = load_element(x + t * p.qkv_token_stride);
        } else if (slots.from >= 0) {
          moved = from[(i + tokens) * step];
        }
        store_element(to + i * step, moved);
      }
    }
  }
};

}  // namespace lathe
