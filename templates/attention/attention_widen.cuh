// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// attention_widen: queries, keys and values in e4m3 become tensors of Element, code times scale,
// rounded once. A thread has 16 neighbouring codes of a row.
#pragma once
#include "common/aligned.cuh"
#include "common/narrow.cuh"
#include "params/attention_widen.h"

namespace lathe {

template <class Config>
__device__ void attention_widen(const AttentionWidenParams& p) {
  using Element = typename Config::Element;
  long long block = blockIdx.x;
  int which = 0;
  while (which < 2 && block >= p.blocks[which]) block -= p.blocks[which++];
  const AttentionWidenTensor& of = p.tensor[which];
  const long long piece = block * Config::kThreads + static_cast<int>(threadIdx.x);
  if (piece >= of.pieces) return;
  const int columns = of.width / 16;
  const int column = static_cast<int>(piece % columns) * 16;
  const long long row = piece / columns, token_row = row / of.heads;
  const int head = static_cast<int>(row % of.heads);
  const auto* from = static_cast<const unsigned char*>(of.from) +
                     token_row / of.tokens * of.batch_stride +
                     token_row % of.tokens * of.token_stride + head * of.head_stride + column;
  Words<16> codes;
  load_aligned<PromiseOf<Config>::kBytes>(from, codes);
  const float scale = load_element(static_cast<const float*>(of.scale) + head * of.scale_stride);
  Element* const to = static_cast<Element*>(of.to) + row * of.width + column;
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    float value[4];
    widen_e4m3(codes.word[w], scale, value);
    store_global(to + 4 * w, pack<Element, 4 * sizeof(Element)>(value));
  }
}

}  // namespace lathe
