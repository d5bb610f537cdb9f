// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The host hands these parameters to lse_merge. Widest fields first, no holes.
#pragma once

namespace lathe {

struct LseMergeParams {
  void* out;              // float32 [B, S, H, DV], or packed [T, H, DV] with B = 1
  void* lse;              // float32 [B, H, S], or [H, T]
  const void* block_out;  // shape of out
  const void* block_lse;  // shape of lse
  const void* sinks;      // float32 [H]
  void* rounded;          // shape of out; 16 bits
  long long out_batch_stride, out_token_stride, out_head_stride;  // in elements
  long long block_batch_stride, block_token_stride, block_head_stride;
  long long rounded_batch_stride, rounded_token_stride, rounded_head_stride;
  int rows;           // B * S * H
  int heads, tokens;  // H and S
  int value_dim;      // DV, a multiple of 8
};

}  // namespace lathe
