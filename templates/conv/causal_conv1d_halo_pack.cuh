// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// causal_conv1d_halo_pack: the rows that later ranks may need of this part: the history at
// positions [end - (W - 1), end) of the sequence that goes on past `end`, as far as this rank knows
// it: its tokens here, and the initial state's slots if the sequence began here. Zeros elsewhere.
#pragma once
#include "conv/halo.cuh"

namespace lathe {

template <class Config>
__device__ void causal_conv1d_halo_pack(const ConvHaloPackParams& p) {
  using Element = typename Config::Element;
  using Raw = Words<Config::kVectorBytes>;
  constexpr int kWidth = Config::kWidth, kVector = Config::kVectorBytes / sizeof(Element);
  const ConvHaloTile at = conv_halo_tile<Config>(p.channels);
  Sequence sequence{0, p.end, p.end};  // none goes on
  if (p.end < p.length) sequence = conv_sequence<Config>(p, at.row, p.end);
  if (at.channel >= p.channels) return;
  const bool began_here = p.begin <= sequence.start && sequence.start < p.end;
#pragma unroll
  for (int h = 0; h < kWidth - 1; ++h) {
    const int position = p.end - (kWidth - 1) + h;
    const int since = position - sequence.start;
    Raw raw{};
    if (since >= 0 && position >= p.begin) {
      load_global(conv_x<Element>(p, at.row, position) + at.channel, raw);
    } else if (Config::kInitialState && since < 0 && began_here && sequence.index < p.sequences) {
      const Element* slots = conv_state<kWidth>(static_cast<const Element*>(p.initial_state),
                                                p.channels, sequence.index, at.channel);
      Element value[kVector];
#pragma unroll
      for (int v = 0; v < kVector; ++v)
        value[v] = load_element(slots + v * kWidth + kWidth + since);
      raw = bit_cast<Raw>(value);
    }
    store_global(static_cast<Element*>(p.rows) +
                     conv_message_row<Config>(0, h, at.row, p.batch, p.channels) + at.channel,
                 raw);
  }
}

}  // namespace lathe
