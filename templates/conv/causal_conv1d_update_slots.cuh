// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// causal_conv1d_update over slots of a pool: any number of tokens of each sequence, a state of any
// length, read from another slot than it is written to.
//
//   z_j: the inputs of the sequence, those before the call at j < 0
//   y_t = act(bias + sum_i weight[i] z_(t - W + 1 + i)) + residual_t
//
// The state holds the last L inputs with the newest at the right end; or it is a ring, in which
// input j of the sequence lies in column j % L; or it is a window of drafts, whose column W - 2 + j
// holds token j of the last call. A thread has a channel of a sequence: neighbouring ones read
// neighbouring channels of x, and of the state L columns each. Offsets, slots and counts are on the
// device and checked by nobody: a slot that is not there is padding.
#pragma once
#include "common/varlen.cuh"
#include "conv/window.cuh"
#include "params/conv_slots.h"

namespace lathe {

template <class Config>
struct ConvSlots {
  using Element = typename Config::Element;
  static constexpr int kWidth = Config::kWidth, kBefore = kWidth - 1;

  const ConvUpdateSlotsParams& p;
  const long long stride;  // of a state's columns
  const int sequence, channel;

  __device__ __forceinline__ int slot_of(const void* indices) const {
    long long slot = sequence;
    if (indices != nullptr) {
      slot = load_element(static_cast<const typename Config::Index*>(indices) + sequence);
    }
    return slot < 0 || slot >= p.slots || slot == p.null_slot ? -1 : static_cast<int>(slot);
  }
  __device__ __forceinline__ Element* column(int slot) const {
    return static_cast<Element*>(p.state) + slot * p.state_slot_stride +
           channel * p.state_channel_stride;
  }
  __device__ __forceinline__ int count_of(const void* counts) const {
    return load_element(static_cast<const int*>(counts) + sequence);
  }
  // Column of input j of the call in a ring; below 0: before the call.
  __device__ __forceinline__ int ring_column(int stored, int j) const {
    const long long at = (static_cast<long long>(stored) + j) % p.length;
    return static_cast<int>(at < 0 ? at + p.length : at);
  }

  // By a wrong count of drafts the inputs before the call are not in the slot: padding too.
  __device__ __forceinline__ bool accepted_is_held() const {
    if (p.num_accepted_tokens == nullptr) return true;
    const int accepted = count_of(p.num_accepted_tokens);
    return accepted >= 1 && accepted <= p.length - kBefore + 1;
  }

  // The last W - 1 inputs before the call, oldest first.
  __device__ __forceinline__ void read(int source, float (&before)[kBefore]) const {
#pragma unroll
    for (int i = 0; i < kBefore; ++i) before[i] = 0.0f;
    if (source < 0) return;
    const Element* from = column(source);
#pragma unroll
    for (int i = 0; i < kBefore; ++i) {
      int at = p.length - kBefore + i;
      if (p.cache_seqlens != nullptr) at = ring_column(count_of(p.cache_seqlens), i - kBefore);
      if (p.num_accepted_tokens != nullptr) at = count_of(p.num_accepted_tokens) - 1 + i;
      before[i] = to_float(from[at * stride]);
    }
  }

  // Input j of the call, or one before it.
  template <class InputAt>
  __device__ __forceinline__ void write(int slot, int source, int tokens,
                                        const float (&before)[kBefore],
                                        const InputAt& input_at) const {
    Element* const to = column(slot);
    if (p.num_accepted_tokens != nullptr) {
      if (tokens == 0) return;
#pragma unroll
      for (int i = 1; i < kBefore; ++i) to[(i - 1) * stride] = from_float<Element>(before[i]);
      for (int t = 0; t < tokens && kBefore - 1 + t < p.length; ++t) {
        to[(kBefore - 1 + t) * stride] = input_at(t);
      }
      return;
    }
    const Element* from = source < 0 ? nullptr : column(source);
    if (p.cache_seqlens != nullptr) {
      for (int i = 0; source != slot && i < p.length; ++i) {
        to[i * stride] = from == nullptr ? from_float<Element>(0.0f) : from[i * stride];
      }
      const int stored = count_of(p.cache_seqlens);
      for (int t = maximum(tokens - p.length, 0); t < tokens; ++t) {
        to[ring_column(stored, t) * stride] = input_at(t);
      }
      return;
    }
    for (int i = 0; i < p.length;
         ++i) {  // ascending: what is read lies at or behind what is written
      const long long j = static_cast<long long>(i) + tokens;
      if (j >= p.length) {
        to[i * stride] = input_at(static_cast<int>(j - p.length));
      } else {
        to[i * stride] = from == nullptr ? from_float<Element>(0.0f) : from[j * stride];
      }
    }
  }

  // Rows first .. first + tokens - 1 of the call.
  template <class RowAt>
  __device__ __forceinline__ void run(int tokens, const RowAt& row_at) const {
    const int slot = slot_of(p.state_indices);
    if (slot < 0 || !accepted_is_held()) {
      for (int t = 0; t < tokens; ++t) row_at.store(t, from_float<Element>(0.0f));
      return;
    }
    const int source = p.source_indices == nullptr ? slot : slot_of(p.source_indices);
    using Weight = typename Config::WeightElement;
    float weight[kWidth], bias = 0.0f, window[kWidth], before[kBefore];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      weight[i] = to_float(load_element(static_cast<const Weight*>(p.weight) +
                                        static_cast<long long>(channel) * kWidth + i));
    }
    if constexpr (Config::kBias) {
      bias = to_float(load_element(static_cast<const Weight*>(p.bias) + channel));
    }
    read(source, before);
#pragma unroll
    for (int i = 0; i < kBefore; ++i) window[i + 1] = before[i];
    for (int t = 0; t < tokens; ++t) {
#pragma unroll
      for (int i = 0; i < kBefore; ++i) window[i] = window[i + 1];
      window[kBefore] = to_float(row_at.input(t));
      float sum = bias;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sum = __fmaf_rn(weight[i], window[i], sum);
      if constexpr (Config::kSilu) sum = conv_silu(sum);
      if constexpr (Config::kResidual) sum = __fadd_rn(sum, to_float(row_at.residual(t)));
      row_at.store(t, from_float<Element>(sum));
    }
    if (p.update_state) {
      write(slot, source, tokens, before, [&](int t) { return row_at.input(t); });
    }
  }
};

// Rows of x, residual and y of a sequence's channel.
template <class Element>
struct ConvSlotRows {
  const Element* x;
  const Element* added;
  Element* y;
  long long x_stride, added_stride, y_stride;

  __device__ __forceinline__ Element input(int t) const { return load_element(x + t * x_stride); }
  __device__ __forceinline__ Element residual(int t) const {
    return load_element(added + t * added_stride);
  }
  __device__ __forceinline__ void store(int t, Element value) const {
    store_element(y + t * y_stride, value);
  }
};

// Blocks: tiles of channels of each sequence, and of the rows behind the last one.
template <class Config>
__device__ void causal_conv1d_update_slots(const ConvUpdatePoolParams& pool) {
  const ConvUpdateSlotsParams& p = pool.call;
  using Element = typename Config::Element;
  const unsigned tiles = (p.channels - 1u) / Config::kThreads + 1u;
  const int sequence = static_cast<int>(blockIdx.x / tiles);
  const int channel = static_cast<int>(blockIdx.x % tiles * Config::kThreads + threadIdx.x);
  if (channel >= p.channels) return;
  long long first = 0;
  int tokens = p.tokens;
  const bool packed = p.cu_seqlens != nullptr;
  if (packed) {
    using Offset = typename Config::Offset;
    const bool last = sequence == p.sequences;
    const int begin = offset_at<Offset>(p.cu_seqlens, sequence, p.rows);
    const int end = last ? p.rows : offset_at<Offset>(p.cu_seqlens, sequence + 1, p.rows);
    first = begin, tokens = maximum(end - begin, 0);
  }
  const long long batch = packed ? 0 : sequence;
  const ConvSlotRows<Element> rows = {
      static_cast<const Element*>(p.x) + batch * p.x_batch_stride + first * p.x_row_stride +
          channel,
      static_cast<const Element*>(p.residual) + batch * p.residual_batch_stride +
          first * p.residual_row_stride + channel,
      static_cast<Element*>(p.y) + batch * p.y_batch_stride + first * p.y_row_stride + channel,
      p.x_row_stride,
      p.residual_row_stride,
      p.y_row_stride};
  if (sequence == p.sequences) {  // padding
    for (int t = 0; t < tokens; ++t) rows.store(t, from_float<Element>(0.0f));
    return;
  }
  ConvSlots<Config>{p, pool.state_column_stride, sequence, channel}.run(tokens, rows);
}

}  // namespace lathe
