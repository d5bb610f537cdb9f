// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What the host hands to the sparse attention kernels. Widest fields first, no holes; each emitted
// unit asserts the size and the offset of the last field.
//
// A row is one query of all heads; the G = heads / kv_heads heads of a key head read the keys that
// one list of topk entries names. Rows of a batch are seq_q to a sequence, packed ones those of
// cu_seqlens_q; keys of packed sequence n are key_starts[n] .. key_ends[n] - 1 of the key tensor,
// which may overlap. Entry e >= 0 names the tokens e << block_shift and on of the row's sequence,
// 2^block_shift of them, or with `absolute` the row e of the key tensor. What is below 0, outside
// the sequence, or with `causal` behind the row's position is skipped, wherever it stands; what is
// named twice counts twice.
#pragma once

namespace lathe {

struct SparseInputs {
  const void* q;             // [B, S1, H, D], or packed [T1, H, D]
  const void* k;             // [B, S2, HK, D], or [T2, HK, D]
  const void* v;             // [B, S2, HK, DV], or [T2, HK, DV]; with values in keys not read
  const void* q_rope;        // [..., H, R]
  const void* k_rope;        // [..., HK, R]
  const void* indices;       // int32 [B, S1, HK, topk], or [T1, HK, topk]
  const void* cu_seqlens_q;  // [N + 1]
  const void* key_starts;    // [N], of the type of cu_seqlens_q
  const void* key_ends;      // [N]
  const void* q_pos;         // int32 [B, S1], or [T1]; or null: the last row is at the last key
  const void* sinks;         // float32 [H]
  long long q_batch_stride, q_token_stride, q_head_stride;  // in elements; widths are contiguous
  long long k_batch_stride, k_token_stride, k_head_stride;
  long long v_batch_stride, v_token_stride, v_head_stride;
  long long q_rope_batch_stride, q_rope_token_stride, q_rope_head_stride;
  long long k_rope_batch_stride, k_rope_token_stride, k_rope_head_stride;
  long long indices_batch_stride, indices_token_stride, indices_head_stride;
  int sequences, heads, kv_heads;
  int seq_q, seq_k;                   // S1 and S2, or T1 and T2
  int head_dim, rope_dim, value_dim;  // D, R, DV: multiples of 8
  int topk, block_shift;
  int absolute, causal;
  int head_tiles;  // that the heads of a key head are cut into
  float scale;
};

// One part of each list, if there are several. Softmax statistics are in natural units of the
// scaled scores, out is already divided by the sum.
struct SparseForwardParams {
  SparseInputs in;
  void* out;          // [B, S1, H, DV], or [T1, H, DV]
  void* softmax_max;  // float32 [B, HK, S1, G], or [HK, T1, G]; null: not wanted, as the next two
  void* softmax_sum;
  void* lse;          // float32 [B, H, S1], or [H, T1]
  void* partial_out;  // float32 [splits, rows, H, DV], if splits > 1
  void* partial_max;  // float32 [splits, rows, H]
  void* partial_sum;
  long long out_batch_stride, out_token_stride, out_head_stride;
  int splits, reserved;
};

// Parts of lists, or of keys, become one. A part without keys has the sum 0; its out is not read.
struct SparseCombineParams {
  const void* partial_out;  // float32 [splits, rows, H, DV]
  const void* partial_max;  // float32 [splits, rows, H]
  const void* partial_sum;  // below 0 in rows of no sequence
  const void* sinks;        // float32 [H]
  void* out;
  void* softmax_max;
  void* softmax_sum;
  void* lse;
  long long out_batch_stride, out_token_stride, out_head_stride;
  long long rows;  // B * S1, or T1
  int seq_q;       // S1, or T1
  int heads, kv_heads, value_dim;
  int splits, reserved;
};

}  // namespace lathe
