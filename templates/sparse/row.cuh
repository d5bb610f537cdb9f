// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Which row and heads a block of sparse attention works on, and which keys the row may see.
#pragma once
#include "common/varlen.cuh"
#include "params/sparse_attention.h"

namespace lathe {

struct SparseRow {
  int batch, token;  // where the row is in its tensors; packed: 0 and the packed row
  long long row;     // counted through all batches
  int kv_head;
  int first_head, heads;  // the tile's query heads, counted in the group: first and how many
  long long key_row;      // key 0 of its sequence in the key tensor's batch
  long long origin;       // what entries are counted from: 0, or key 0 as an absolute row
  int limit;              // keys from here on are not seen; 0 for padding
  bool inside;            // of a sequence: the others are padding

  __device__ __forceinline__ long long offset(long long batch_stride,
                                              long long token_stride) const {
    return batch * batch_stride + token * token_stride;
  }
  // The statistics of out, [B, HK, S1, G] and [B, H, S1].
  __device__ __forceinline__ long long statistic(const SparseInputs& in, int head) const {
    const int group = in.heads / in.kv_heads;
    return ((static_cast<long long>(batch) * in.kv_heads + kv_head) * in.seq_q + token) * group +
           head;
  }
  __device__ __forceinline__ long long lse(const SparseInputs& in, int head) const {
    return (static_cast<long long>(batch) * in.heads + kv_head * (in.heads / in.kv_heads) + head) *
               in.seq_q +
           token;
  }
};

// `tile` counts rows, key heads and tiles of heads, the tiles fastest: blocks that read the same
// keys are neighbours.
template <class Config>
__device__ __forceinline__ SparseRow sparse_row(const SparseInputs& in, unsigned tile) {
  SparseRow at;
  const int group = in.heads / in.kv_heads;
  const unsigned other = tile / in.head_tiles;
  at.first_head = static_cast<int>(tile % in.head_tiles) * Config::kTileM;
  at.heads = minimum(group - at.first_head, Config::kTileM);
  at.kv_head = static_cast<int>(other % in.kv_heads);
  at.row = other / in.kv_heads;
  at.inside = true;
  int rows, keys, row_in_sequence;
  if constexpr (Config::kPacked) {
    using Offset = typename Config::Offset;
    at.batch = 0, at.token = static_cast<int>(at.row);
    const Sequence sequence =
        find_sequence<Offset>(in.cu_seqlens_q, in.sequences, in.seq_q, at.token);
    const int n = sequence.index;
    const int end = in.sequences > 0 ? offset_at<Offset>(in.cu_seqlens_q, n + 1, in.seq_q) : 0;
    const int start = in.sequences > 0 ? offset_at<Offset>(in.key_starts, n, in.seq_k) : 0;
    keys = in.sequences > 0 ? offset_at<Offset>(in.key_ends, n, in.seq_k) - start : 0;
    at.inside = at.token < end;
    rows = end - sequence.start, row_in_sequence = at.token - sequence.start;
    at.key_row = at.origin = start;
    if (in.key_origins != nullptr && in.sequences > 0) {
      at.origin = load_element(static_cast<const Offset*>(in.key_origins) + n);
    }
  } else {
    at.batch = static_cast<int>(at.row / in.seq_q), at.token = static_cast<int>(at.row % in.seq_q);
    rows = in.seq_q, row_in_sequence = at.token, keys = in.seq_k;
    at.key_row = 0, at.origin = at.batch * in.origin_stride;
  }
  if (!in.absolute) at.origin = 0;
  at.limit = at.inside ? maximum(keys, 0) : 0;
  if (in.causal) {
    const int position =
        in.q_pos != nullptr
            ? load_element(static_cast<const int*>(in.q_pos) + at.offset(in.q_pos_batch_stride, 1))
            : keys - rows + row_in_sequence;
    if (position < at.limit) at.limit = maximum(position + 1, 0);
  }
  return at;
}

}  // namespace lathe
