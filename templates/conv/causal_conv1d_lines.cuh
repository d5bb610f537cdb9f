// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// causal_conv1d_lines: makes lines of channels out of others, as lists on the device say. So the
// histories of pieces are put together from tokens, initial states and messages, and gradients of
// histories go back. A line is the sum of its sources in float32, in the order of the list, rounded
// once; a line of one source is a copy, and one without sources is zeros. Lists of a fixed length
// end with lines of kind kNoConvLine, which are not made.
//
// A thread owns one channel of a line. No line of a launch is the source of another.
#pragma once
#include "common/math.cuh"
#include "common/types.cuh"
#include "params/conv_lines.h"

namespace lathe {

template <class Element>
__device__ __forceinline__ float load_line(const ConvLineBuffer& buffer, long long at) {
  if (buffer.wide != 0) return load_element(static_cast<const float*>(buffer.data) + at);
  return to_float(load_element(static_cast<const Element*>(buffer.data) + at));
}

__device__ __forceinline__ long long line_offset(const ConvLineBuffer& buffer, int batch, int index,
                                                 int channel) {
  return batch * buffer.batch_stride + index / buffer.slots * buffer.line_stride +
         index % buffer.slots + static_cast<long long>(channel) * buffer.slots;
}

template <class Config>
__device__ void causal_conv1d_lines(const ConvLinesParams& p) {
  using Element = typename Config::Element;
  const unsigned tiles = (p.channels - 1u) / Config::kThreads + 1u;
  const unsigned item = blockIdx.x / tiles;
  const int channel =
      static_cast<int>((blockIdx.x - item * tiles) * Config::kThreads + threadIdx.x);
  const int batch = static_cast<int>(item / p.lines), line = static_cast<int>(item % p.lines);
  if (channel >= p.channels) return;
  const ConvLineSum* sum = static_cast<const ConvLineSum*>(p.sums) + line;
  const int kind = load_element(&sum->to.kind);
  if (kind == kNoConvLine) return;
  const int first = load_element(&sum->first), count = load_element(&sum->count);
  const ConvLineBuffer& to = p.to[kind];
  const long long at = line_offset(to, batch, load_element(&sum->to.index), channel);
  float total = 0.0f;
  if (p.adds != 0) {  // plain loads: the line is written below
    total = to.wide != 0 ? static_cast<const float*>(to.data)[at]
                         : to_float(static_cast<const Element*>(to.data)[at]);
  }
#pragma unroll 1
  for (int i = first; i < first + count; ++i) {
    const ConvLineRef* source = static_cast<const ConvLineRef*>(p.sources) + i;
    const ConvLineBuffer& from = p.from[load_element(&source->kind)];
    const float value =
        load_line<Element>(from, line_offset(from, batch, load_element(&source->index), channel));
    // The first of several terms is taken as it is: a sum with 0 would lose the sign of -0.
    total = i == first && p.adds == 0 ? value : __fadd_rn(total, value);
  }
  if (to.wide != 0) {
    store_element(static_cast<float*>(to.data) + at, total);
  } else {
    store_element(static_cast<Element*>(to.data) + at, from_float<Element>(total));
  }
}

}  // namespace lathe
