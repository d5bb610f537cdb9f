// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The host hands these parameters to the sparse attention kernels. Widest fields first, no holes;
// each emitted unit asserts the size and the offset of the last field.
//
// A row is one query of all heads; the G = heads / kv_heads heads of a key head read the keys that
// one list of topk entries names. Rows of a batch are seq_q to a sequence, packed ones those of
// cu_seqlens_q; keys of packed sequence n are key_starts[n] .. key_ends[n] - 1 of the key tensor,
// which may overlap. Entry e >= 0 names the tokens e << block_shift and on of the row's sequence,
// 2^block_shift of them, or with `absolute` the row e of the key tensor. What is below 0, outside
// the sequence, or with `causal` behind the row's position is skipped, wherever it stands; what is
// named twice counts twice.
//
// The key tensor may hold some keys of a larger one, the beginning of each sequence: then absolute
// entries are rows of that one, and rows that are part of a sequence have their positions in q_pos.
#pragma once

namespace lathe {

struct SparseInputs {
  const void* q;            // [B, S1, H, D], or packed [T1, H, D]
  const void* k;            // [B, S2, HK, D], or [T2, HK, D]
  const void* v;            // [B, S2, HK, DV], or [T2, HK, DV]; with values in keys not read
  const void* q_rope;       // [..., H, R]
  const void* k_rope;       // [..., HK, R]
  const void* indices;      // int32 [B, S1, HK, topk], or [T1, HK, topk]
  const void* topk_length;  // int32 [B, S1], or [T1]: entries that count; null: all
  // Of a second cache, kExtra: rows of its own, which entries name as they are.
  const void* k_extra;            // [Tx, HK, D], or rows of bytes
  const void* indices_extra;      // int32 [B, S1, HK, topk2], or [T1, HK, topk2]
  const void* topk_length_extra;  // as topk_length
  const void* cu_seqlens_q;       // [N + 1]
  const void* key_starts;         // [N], of the type of cu_seqlens_q
  const void* key_ends;           // [N]
  const void* key_origins;        // [N]: key_starts in the larger key tensor; null: key_starts
  const void* q_pos;  // int32 [B, S1], or [T1]; or null: the last row is at the last key
  const void* sinks;  // float32 [H]
  long long q_batch_stride, q_token_stride, q_head_stride;  // in elements; widths are contiguous
  long long k_batch_stride, k_token_stride, k_head_stride;
  long long v_batch_stride, v_token_stride, v_head_stride;
  long long q_rope_batch_stride, q_rope_token_stride, q_rope_head_stride;
  long long k_rope_batch_stride, k_rope_token_stride, k_rope_head_stride;
  long long indices_batch_stride, indices_token_stride, indices_head_stride;
  long long k_extra_token_stride, k_extra_head_stride;
  long long indices_extra_batch_stride, indices_extra_token_stride, indices_extra_head_stride;
  long long q_pos_batch_stride;  // 0: all sequences of a batch have the same positions
  long long origin_stride;       // S2, or that of the larger key tensor
  int sequences, heads, kv_heads;
  int seq_q, seq_k;                   // S1 and S2, or T1 and T2
  int head_dim, rope_dim, value_dim;  // D, R, DV: multiples of 8
  int topk, block_shift;
  int topk_extra, keys_extra;  // topk2 and Tx
  int absolute, causal;
  int head_tiles;  // that the heads of a key head are cut into
  float scale;
};

// One part of each list, if there are several. Softmax statistics are in natural units of the
// scaled scores, out is already divided by the sum.
struct SparseForwardParams {
  SparseInputs in;
  void* out;          // [B, S1, H, DV], or [T1, H, DV]; float32 if Config::Out is
  void* softmax_max;  // float32 [B, HK, S1, G], or [HK, T1, G]; null: not wanted, as the next two
  void* softmax_sum;
  void* lse;          // float32 [B, H, S1], or [H, T1]
  void* partial_out;  // float32 [splits, rows, H, DV], if splits > 1
  void* partial_max;  // float32 [splits, rows, H]
  void* partial_sum;
  long long out_batch_stride, out_token_stride, out_head_stride;
  int sinks_apart;  // statistics and lse leave the sinks out
  int splits;
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
  int sinks_apart;
  int splits;
};

// The backward, in launch order: prepare, the main kernel, finish. Flat row: row b S1 + i, or the
// packed row, R = B S1 or T1 of them; flat key: b S2 + j, or row of packed k.
//
// delta = sum_c dout out of each row and head, in the order of the sums that it is subtracted from;
// parts of dsinks over kTileM rows each; and memory that must be 0: the sums of key gradients and,
// deterministic, the table of counts with its cursor.
//
// Config: Element, kValueWidth, kTileM, kGroups (that of the main kernel), kSinks.
// Blocks: tiles * heads + ceil(zero_chunks / (kThreads * kZeroChunks)), kZeroChunks = 8.
struct SparseBackwardPrepareParams {
  const void* out;     // [B, S1, H, DV], or [T1, H, DV]
  const void* dout;    // the same
  const void* lse;     // float32 [B, H, S1], or [H, T1]
  const void* sinks;   // float32 [H]; kSinks
  void* delta;         // float32 [R, H]
  void* dsinks_parts;  // float32 [tiles, H]; kSinks; with kTerms [R, H]
  void* zeroed;        // 16 * zero_chunks bytes
  long long out_batch_stride, out_token_stride, out_head_stride;
  long long dout_batch_stride, dout_token_stride, dout_head_stride;
  long long zero_chunks;
  int rows;   // R
  int seq_q;  // S1, or T1
  int heads, value_dim;
  int tiles;  // ceil(R / kTileM)
  int reserved;
};

// Config: Element, Offset, kWidth, kValueWidth, kTileM, kTileN, kStages (of keys: 1 or 2), kPacked,
// kValuesInKeys, kDeterministic. Blocks: rows of the launch * kv_heads * head_tiles.
//
// Gradients of keys are float32 sums. Without kDeterministic every block adds to them, in no order,
// and one launch has all rows. With it a launch has a chunk of rows, and each stores what its
// entries contribute into slots; SparseBackwardGatherParams tells what becomes of them.
// A null dq, dq_rope, dk or dv is not wanted; with kValuesInKeys dk has dv in it.
struct SparseBackwardParams {
  SparseInputs in;
  const void* dout;   // [B, S1, H, DV], or [T1, H, DV]
  const void* lse;    // float32 [B, H, S1], or [H, T1]
  const void* delta;  // float32 [R, H]
  void* dq;           // [B, S1, H, D], or [T1, H, D]
  void* dq_rope;      // [..., H, R]
  void* dk;           // float32 [keys, HK, D + R]: sums; deterministic: whether they are wanted
  void* dv;           // float32 [keys, HK, DV]: the same
  void* slots;        // float32 [chunk, HK, head_tiles, entries, D + R, and DV unless in keys]
  void* listed;       // int32 [chunk, HK, entries]: flat key * HK + head of each entry
  void* lengths;      // int32 [chunk, HK]: how many entries there are
  void* counts;       // int32 [keys * HK, chunk]: entries of a row that name a key; added to
  long long dout_batch_stride, dout_token_stride, dout_head_stride;
  long long dq_batch_stride, dq_token_stride, dq_head_stride;
  long long dq_rope_batch_stride, dq_rope_token_stride, dq_rope_head_stride;
  int first_row;  // of the launch: a flat row
  int chunk;      // rows that counts and slots have room for
  int entries;    // topk << block_shift
  int reserved;
};

// The three launches behind each chunk share this struct. The first gives every key its range of
// `index`, its rows in order; the second lists there the entries that name it; the third adds their
// slots to the sums, entry by entry, and leaves counts and cursor 0 for the next chunk. Entries of
// one row that name one key may stand in either order: their slots are equal bit for bit.
//
// sparse_backward_ranges: a warp for each key and head: ceil(keys HK / (kThreads / 32)) blocks.
// sparse_backward_fill:   a block for each row of the chunk and key head.
// sparse_backward_gather: a warp for each 128 columns of them: of dk, and behind them of dv.
struct SparseBackwardGatherParams {
  const void* slots;    // float32 [chunk, HK, head_tiles, entries, D + R, and DV unless in keys]
  const void* listed;   // int32 [chunk, HK, entries]
  const void* lengths;  // int32 [chunk, HK]
  void* counts;         // int32 [keys * HK, chunk]; then offsets in `index`
  void* ranges;         // int32 [keys * HK, 2]: begin and number of a key's entries
  void* index;          // int32 [chunk * HK * entries]: slots, of the first tile of heads
  void* cursor;         // int32: entries that have an offset so far
  void* dk;             // float32 [keys, HK, D + R]
  void* dv;             // float32 [keys, HK, DV]
  long long keys;       // flat keys times HK
  int chunk;
  int rows;  // of the chunk that are there
  int kv_heads, head_tiles, entries;
  int key_width;    // D + R
  int value_width;  // DV, or 0: values in keys
  int reserved;
};

// dk, dk_rope and dv from their sums, dsinks = sum over tiles, in order. A part without blocks is
// left out. A thread has 8 columns of a key and head, or a warp one element of dsinks.
//
// Config: Element. Blocks: dk_blocks + dv_blocks + dsinks_blocks,
//   dk_blocks = ceil(keys HK ((D + R) / 8) / kThreads)     dv_blocks = the same of DV
//   dsinks_blocks = ceil(H / (kThreads / 32))
struct SparseBackwardFinishParams {
  const void* dk_sums;       // float32 [keys, HK, D + R]
  const void* dv_sums;       // float32 [keys, HK, DV]
  const void* dsinks_parts;  // float32 [tiles, H]
  void* dk;                  // [B, S2, HK, D], or [T2, HK, D]; null: not wanted, as the next
  void* dk_rope;             // [..., HK, R]
  void* dv;                  // [B, S2, HK, DV], or [T2, HK, DV]
  void* dsinks;              // float32 [H]
  long long dk_batch_stride, dk_token_stride, dk_head_stride;
  long long dk_rope_batch_stride, dk_rope_token_stride, dk_rope_head_stride;
  long long dv_batch_stride, dv_token_stride, dv_head_stride;
  long long keys;  // flat
  int seq_k;       // S2, or T2
  int heads, kv_heads;
  int head_dim, rope_dim, value_dim;
  int tiles;  // of dsinks_parts
  int dk_blocks, dv_blocks, dsinks_blocks;
};

}  // namespace lathe
