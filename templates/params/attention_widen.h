// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The host hands these parameters to the kernel that widens codes of e4m3.
#pragma once

namespace lathe {

// One tensor [B, S, heads, width], or packed [T, heads, width] with rows 0; `to` has no gaps.
struct AttentionWidenTensor {
  const void* from;
  const void* scale;  // float32 [1], or [heads] with scale_stride 1
  void* to;
  long long batch_stride, token_stride, head_stride;  // of `from`, in codes
  long long pieces;                                   // of 16 codes, in all
  int tokens, heads, width;                           // tokens: of a sequence
  int scale_stride;
};

struct AttentionWidenParams {
  AttentionWidenTensor tensor[3];  // q, k, v
  long long blocks[3];             // of each tensor
};

}  // namespace lathe
