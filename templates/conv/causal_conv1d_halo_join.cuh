// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// causal_conv1d_halo_join: one halo out of the rows of several ranks, whose parts may be shorter
// than W - 1. The row of a position comes from the rank whose part holds it; rows before the start
// of the sequence come from the rank that holds that start. Exact copies.
#pragma once
#include "conv/halo.cuh"

namespace lathe {

template <class Config>
__device__ void causal_conv1d_halo_join(const ConvHaloJoinParams& p) {
  using Element = typename Config::Element;
  constexpr int kWidth = Config::kWidth;
  const ConvHaloTile at = conv_halo_tile<Config>(p.channels);
  Sequence sequence{0, p.begin, p.begin};
  if (p.begin < p.length) sequence = conv_sequence<Config>(p, at.row, p.begin);
  if (at.channel >= p.channels) return;
#pragma unroll
  for (int h = 0; h < kWidth - 1; ++h) {
    const int position = p.begin - (kWidth - 1) + h;
    const int wanted = maximum(position, sequence.start);  // the position that names the sender
    Words<Config::kVectorBytes> raw{};
    if (sequence.start < p.begin) {
#pragma unroll 1
      for (int m = 0; m < p.count; ++m) {
        const int row = position - (p.part_end[m] - (kWidth - 1));
        if (p.part_begin[m] <= wanted && wanted < p.part_end[m] && row >= 0) {
          load_global(static_cast<const Element*>(p.messages) +
                          conv_message_row<Config>(m, row, at.row, p.batch, p.channels) +
                          at.channel,
                      raw);
        }
      }
    }
    store_global(static_cast<Element*>(p.halo) +
                     conv_message_row<Config>(0, h, at.row, p.batch, p.channels) + at.channel,
                 raw);
  }
}

}  // namespace lathe
