// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The host hands these parameters to causal_conv1d_lines, which moves and adds up lines of all
// channels between activations, states and messages (collective/plans/piece_history.h).
#pragma once

namespace lathe {

// Line i of row b of the batch, at channel c, is at
//   b batch_stride + (i / slots) line_stride + i % slots + c slots    in elements.
// Rows of tokens and of messages have one slot, states [.., D, W] have W.
struct ConvLineBuffer {
  void* data;
  long long batch_stride, line_stride;
  int slots;
  int wide;  // 1: float32, 0: Element
};

constexpr int kNoConvLine = 0;  // the kind of a line that is not made
struct ConvLineRef {
  int kind;   // a buffer, by its number
  int index;  // of the line
};
struct ConvLineSum {
  ConvLineRef to;
  int first, count;  // of its sources
};

constexpr int kConvLineBuffers = 5;
struct ConvLinesParams {
  const void* sums;     // ConvLineSum [lines]
  const void* sources;  // ConvLineRef
  ConvLineBuffer from[kConvLineBuffers], to[kConvLineBuffers];
  int batch, channels, lines;
  int adds;  // 1: the line's value before is one of the terms, the first one
};

}  // namespace lathe
