// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The host hands these parameters to the kernel that joins key gradients of sparse attention over
// ranks. Widest fields first, no holes.
#pragma once

namespace lathe {

// One tensor has columns `..._column` and on, `width` of them, of rows that may have more.
struct SparseJoinTensor {
  const void* own;       // float32 [B, gathered, HK, own_width]: of the rank's own rows
  const void* returned;  // Config::Part [B, received, HK, returned_width]: of the other ranks'
  void* out;             // Config::Element [B, keys, HK, width]
  long long batch_stride, token_stride, head_stride;  // of out, in elements
  int own_width, own_column;
  int returned_width, returned_column;
  int width;   // a multiple of 8
  int blocks;  // 0: not wanted
};

// A gradient is the sum of its parts by rank, ascending; then of dsinks [H] the same. A thread has
// 8 columns of a key and head, or one element of dsinks.
//
// Config: Element, Part (float32 or Element). Blocks: those of the tensors, which are
// ceil(B keys HK (width / 8) / kThreads) or 0, and ceil(H / kThreads) of dsinks or 0.
struct SparseJoinParams {
  SparseJoinTensor tensors[3];
  const void* sources;  // int32 [world, keys]: rows of a batch of own (by `rank`), else of returned
  const void* dsinks_parts;  // float32 [world, H]
  void* dsinks;              // float32 [H]
  long long gathered, received;
  int batches, keys, kv_heads, heads;
  int world, rank;
};

}  // namespace lathe
