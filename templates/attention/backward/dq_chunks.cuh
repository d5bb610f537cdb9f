// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// dq of a block step in pieces of four columns of one row and head, counted as if nothing lay
// between them: that is the order of the workspace's sums, but the caller's rows may lie apart.
#pragma once

namespace lathe {

// Returns the address of a chunk in dq. Params: those of attention_block_prepare or
// attention_block_finish.
template <class Params>
__device__ __forceinline__ float* dq_chunk(const Params& p, long long chunk) {
  const int columns = p.head_dim / 4;
  const long long row = chunk / columns, token = row / p.heads, sequence = token / p.seq_q;
  const int column = static_cast<int>(chunk - row * columns) * 4;
  const int head = static_cast<int>(row - token * p.heads);
  return static_cast<float*>(p.dq) + sequence * p.batch_stride +
         (token - sequence * p.seq_q) * p.token_stride + head * p.head_stride + column;
}

}  // namespace lathe
