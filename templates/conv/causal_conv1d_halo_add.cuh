// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// causal_conv1d_halo_add: adds what later ranks found for the positions of this part: dx at the
// tokens of the sequence that they continue, dinitial_state before its start if it began here.
// Messages are added in rank order, in float32, and the sum is rounded once. Position p of sender m
// is its row p - (from_begin[m] - (W - 1)); several senders reach one position where parts are
// shorter than W - 1.
#pragma once
#include "conv/halo.cuh"

namespace lathe {

// total += the rows for `position` of sequence (index, start) of all messages. True if any was.
template <class Config, int kVector>
__device__ __forceinline__ bool conv_add_rows(const ConvHaloAddParams& p, const ConvHaloTile& at,
                                              const Sequence* senders, const Sequence& sequence,
                                              int position, float (&total)[kVector]) {
  bool any = false;
#pragma unroll
  for (int m = 0; m < kConvMaxMessages; ++m) {
    const int h = position - (p.from_begin[m] - (Config::kWidth - 1));
    if (m < p.count && h >= 0 && h < Config::kWidth - 1 && senders[m].index == sequence.index &&
        senders[m].start < p.from_begin[m]) {
      Words<4 * kVector> raw;
      float row[kVector];
      load_global(static_cast<const float*>(p.messages) +
                      conv_message_row<Config>(m, h, at.row, p.batch, p.channels) + at.channel,
                  raw);
      unpack<float>(raw, row);
#pragma unroll
      for (int v = 0; v < kVector; ++v) total[v] = __fadd_rn(total[v], row[v]);
      any = true;
    }
  }
  return any;
}

template <class Config>
__device__ void causal_conv1d_halo_add(const ConvHaloAddParams& p) {
  using Element = typename Config::Element;
  using Raw = Words<Config::kVectorBytes>;
  constexpr int kWidth = Config::kWidth, kVector = Config::kVectorBytes / sizeof(Element);
  const ConvHaloTile at = conv_halo_tile<Config>(p.channels);
  if (p.begin >= p.end || p.end >= p.length) return;  // nothing here goes on past `end`
  const Sequence sequence = conv_sequence<Config>(p, at.row, p.end);
  Sequence senders[kConvMaxMessages];
#pragma unroll
  for (int m = 0; m < kConvMaxMessages; ++m) {
    senders[m] = {-1, 0, 0};
    if (m < p.count && p.from_begin[m] >= p.end && p.from_begin[m] < p.length) {
      senders[m] = conv_sequence<Config>(p, at.row, p.from_begin[m]);
    }
  }
  if (sequence.start >= p.end || at.channel >= p.channels) return;

#pragma unroll 1
  for (int h = 0; h < kWidth - 1; ++h) {
    const int position = p.end - (kWidth - 1) + h;
    if (p.dx == nullptr || position < p.begin || position < sequence.start) continue;
    Raw* dx = reinterpret_cast<Raw*>(static_cast<Element*>(p.dx) + at.row * p.dx_batch_stride +
                                     (position - p.begin) * p.dx_token_stride + at.channel);
    float total[kVector];
    unpack<Element>(*dx, total);
    if (conv_add_rows<Config>(p, at, senders, sequence, position, total)) {
      store_global(dx, pack<Element, Config::kVectorBytes>(total));
    }
  }
  if constexpr (Config::kDinitialState) {
    if (sequence.start < p.begin || sequence.index >= p.sequences) return;
    Element* slots = conv_state<kWidth>(static_cast<Element*>(p.dinitial_state), p.channels,
                                        sequence.index, at.channel);
#pragma unroll 1
    for (int slot = 1; slot < kWidth; ++slot) {
      float total[kVector];
#pragma unroll
      for (int v = 0; v < kVector; ++v) total[v] = to_float(slots[v * kWidth + slot]);
      const int position = sequence.start - kWidth + slot;
      if (conv_add_rows<Config>(p, at, senders, sequence, position, total)) {
#pragma unroll
        for (int v = 0; v < kVector; ++v) {
          slots[v * kWidth + slot] = from_float<Element>(total[v]);
        }
      }
    }
  }
}

}  // namespace lathe
