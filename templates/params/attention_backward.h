// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The host hands these parameters to the three kernels of the backward of flash attention, in
// launch order. Sequences, heads and masks are those of params/attention.h; strides are in
// elements, widths contiguous, and lse and dlse have no gaps.
//
// Flat row: of queries b Sq + i, or the packed row, R = B Sq or Tq of them. Workspace rows are flat
// and end where the tensors do: nothing is padded to tiles.
#pragma once

namespace lathe {

// By row: lse2 = lse log2 e, and delta = sum_c dout out - dlse, so that a score's gradient is
// p (dp - delta). A row without a key, or past the last offset, gets lse2 = +inf and delta = 0.
// The sums of dq are zeroed here, or the words that say who has added to them.
//
// Config: Element, CuSeqlens, kValueWidth, kTileM (rows of a block), kPacked, kSinks, kDlse.
// Blocks: tiles * heads.
struct AttentionBackwardPrepareParams {
  const void* out;           // [B, Sq, H, DV], or packed [Tq, H, DV]
  const void* dout;          // the same
  const void* lse;           // float32 [B, H, Sq], or [H, Tq]; natural logarithm
  const void* dlse;          // the same; kDlse
  const void* cu_seqlens_q;  // [N + 1]; kPacked
  const void* sinks;         // float32 [H]; kSinks
  void* lse2;                // float32 [H, R], or in the order that the next strides give
  void* delta;               // the same
  void* dq;                  // float32 [dq_words, 4]: the sums, or what orders them
  void* dsinks_parts;        // float32 [tiles, H]; kSinks
  long long row_batch_stride, row_head_stride;  // of lse2 and delta
  long long out_batch_stride, out_token_stride, out_head_stride;
  long long dout_batch_stride, dout_token_stride, dout_head_stride;
  long long dq_words;  // that are zeroed, 16 bytes each
  int sequences, heads;
  int seq_q;      // of every sequence; packed: Tq
  int rows;       // R
  int value_dim;  // DV
  int tiles;      // ceil(R / kTileM)
};

// Config: Element, CuSeqlens, kWidth, kValueWidth, kTileM, kTileN, kStages (of q: 1 or 2),
// kWidthWarps (warps that share 16 keys and split their widths: 1 or 2), kPacked, kLocal, kSoftcap,
// kAlibi, kDeterministic, kHeadsApart. Blocks: slices * heads * sequences, kv_heads in the place of
// heads unless kHeadsApart.
//
// Without kDeterministic slices is the number of key tiles of one sequence at capacity, a block has
// one of them and dq is one accumulator that all add to, in no order. With kDeterministic the
// block of slice s has the key tiles s, s + slices, ... and accumulator s of dq to itself.
// Dynamic shared memory, widths as the kernel has them:
//   2 (kTileN (D + DV) + kTileM (kStages D + DV) + kWidthWarps kTileM kTileN) + 8 kTileM
//   + 128; of float32, 6 for the first 2 and 1 for kWidthWarps
// A null dq, dk or dv is not wanted. With kHeadsApart every query head has rows of its own in dk
// and dv, which are then float32; without, the block of a key head adds its query heads up.
struct AttentionBackwardParams {
  const void* q;             // [B, Sq, H, D], or packed [Tq, H, D]
  const void* k;             // [B, Sk, HK, D], or [Tk, HK, D]
  const void* v;             // [B, Sk, HK, DV], or [Tk, HK, DV]
  const void* dout;          // [B, Sq, H, DV], or [Tq, H, DV]
  const void* lse2;          // float32 [H, R]
  const void* delta;         // float32 [H, R]
  const void* cu_seqlens_q;  // [N + 1]; kPacked
  const void* cu_seqlens_k;  // [N + 1]; kPacked
  const void* alibi_slopes;  // float32 [H] or [B, H]; kAlibi
  const void* capture[4];    // [C0] .. [C3]: with mods, as in params/attention.h
  void* visits;              // int32 [lists, visits_stride]: see attention/query_visits.cuh
  void* visit_counts;        // int32 [lists], one for each tile of keys and query head
  void* dq;                  // float32 [slices or 1, B, Sq, H, D]: added to, without softmax_scale
  void* dk;                  // [B, Sk, HK, D], or [Tk, HK, D]; kHeadsApart: float32, H for HK
  void* dv;                  // [B, Sk, HK, DV], or [Tk, HK, DV]; kHeadsApart: float32, H for HK
  long long q_batch_stride, q_token_stride, q_head_stride;
  long long k_batch_stride, k_token_stride, k_head_stride;
  long long v_batch_stride, v_token_stride, v_head_stride;
  long long dout_batch_stride, dout_token_stride, dout_head_stride;
  long long dq_slice_stride, dq_batch_stride, dq_token_stride, dq_head_stride;
  long long dk_batch_stride, dk_token_stride, dk_head_stride;
  long long dv_batch_stride, dv_token_stride, dv_head_stride;
  long long alibi_batch_stride;  // 0: one slope a head
  long long visits_stride;       // in entries
  int capture_count[4];          // C0 .. C3
  float scalar[4];
  int first_head, reserved;  // mods are told of head first_head + h
  int sequences, heads, kv_heads;
  int seq_q, seq_k;         // of every sequence; packed: Tq and Tk, capacities
  int rows;                 // R
  int head_dim, value_dim;  // D and DV, multiples of 8, at most the widths of the kernel
  int window_left, window_right;
  int slices;
  int key_tiles;                 // of one sequence, at capacity; with a mask_mod
  float softmax_scale, softcap;  // softcap 0: none
};

// dq = softmax_scale sum over slices; dk, dv = sums over the query heads of a key head, in order;
// dsinks = sum over tiles, in order. A part without blocks is left out.
//
// Config: Element. Blocks, of kThreads threads: dq_blocks + dk_blocks + dv_blocks + dsinks_blocks,
// where a thread has 8 columns of one row and head, and a warp one element of dsinks:
//   dq_blocks = ceil(R H (D / 8) / kThreads)       dk_blocks = ceil(RK HK (D / 8) / kThreads)
//   dsinks_blocks = ceil(H / (kThreads / 32))      dv_blocks = ceil(RK HK (DV / 8) / kThreads)
struct AttentionBackwardFinishParams {
  const void* dq_sums;       // float32 [slices, B, Sq, H, D]
  const void* dk_parts;      // float32 [B, Sk, H, D]: of each query head
  const void* dv_parts;      // float32 [B, Sk, H, DV]
  const void* dsinks_parts;  // float32 [tiles, H]
  void* dq;                  // [B, Sq, H, D], or packed [Tq, H, D]
  void* dk;                  // [B, Sk, HK, D], or [Tk, HK, D]
  void* dv;                  // [B, Sk, HK, DV], or [Tk, HK, DV]
  void* dsinks;              // float32 [H]
  long long dq_sums_slice_stride, dq_sums_batch_stride, dq_sums_token_stride, dq_sums_head_stride;
  long long dk_parts_batch_stride, dk_parts_token_stride, dk_parts_head_stride;
  long long dv_parts_batch_stride, dv_parts_token_stride, dv_parts_head_stride;
  long long dq_batch_stride, dq_token_stride, dq_head_stride;
  long long dk_batch_stride, dk_token_stride, dk_head_stride;
  long long dv_batch_stride, dv_token_stride, dv_head_stride;
  int heads, kv_heads;
  int seq_q, seq_k;         // packed: Tq and Tk
  int rows, keys;           // R, and flat rows of keys
  int head_dim, value_dim;  // D and DV
  int slices;
  int tiles;  // of dsinks_parts
  int dq_blocks, dk_blocks, dv_blocks, dsinks_blocks;
  float softmax_scale;
  int reserved;
};

// A step of a ring: what the block's keys add to dq, dk and dv, which are float32. lse2 and delta,
// here [B, H, Sq], are those of all blocks together. dq is the caller's, or slices of the
// workspace. Config beside that of the backward: kRanges. Dynamic shared memory: the backward's and
// a queue of visits.
struct AttentionBlockBackwardParams {
  AttentionBackwardParams backward;
  const void* ranges;         // int32 [NP, 7], as in AttentionBlockParams
  const void* range_batches;  // int32 [NP], the same
  const void* q_positions;    // int32 [Tq]
  const void* k_positions;    // int32 [Tk]
  const void* row_ranges;     // int32 [row blocks, 2]: least and greatest of q_positions
  int range_count;
  int first_keys;  // nothing to add to: dk and dv are written and not read
};

// lse2 = lse log2 e, +inf where lse is -inf, of `rows` values; zeroes `sums` and `dq`. Four columns
// of a row and head are a chunk.
struct AttentionBlockPrepareParams {
  const void* lse;  // float32 [rows]
  void* lse2;       // float32 [rows]
  void* sums;       // float32 [chunks, 4]
  void* dq;         // float32 [B, Sq, H, D]
  long long rows, chunks;
  long long dq_chunks;                                // B Sq H D / 4, or 0: dq is kept
  long long batch_stride, token_stride, head_stride;  // of dq
  int heads, head_dim;
  int seq_q;
  int reserved;
};

// dq += softmax_scale sum over slices.
struct AttentionBlockFinishParams {
  const void* sums;                                   // float32 [slices, B, Sq, H, D]
  void* dq;                                           // float32 [B, Sq, H, D]
  long long slice_stride;                             // of sums
  long long batch_stride, token_stride, head_stride;  // of dq
  long long chunks;                                   // B Sq H D / 4
  int heads, head_dim;
  int seq_q, slices;
  float softmax_scale;
  int first;  // dq is written and not read
};

}  // namespace lathe
