// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The host hands these parameters to the flash attention kernels. Widest fields first, no holes;
// each emitted unit asserts the size and the offset of the last field.
//
// Sequence b has length_q(b) query rows and length_k(b) keys: seq_q and seq_k, or the differences
// of cu_seqlens when packed; then rows at or past the last offset are padding. Query head h reads
// key head h / (heads / kv_heads). With off = length_k - length_q, row i keeps the keys
//   max(0, i + off - window_left) <= j <= min(length_k - 1, i + off + window_right)
// where a negative window is unlimited; causal is window_right = 0.
#pragma once

namespace lathe {

// Mods read, beside their arguments, the tensors capture_0 to capture_3, of types that are
// constants of the kernel, and the options scalar_0 to scalar_3. They are told of head first_head +
// h, where h counts the heads that are here.
struct AttentionForwardParams {
  const void* q;             // [B, Sq, H, D], or packed [Tq, H, D]
  const void* k;             // [B, Sk, HK, D], or [Tk, HK, D]
  const void* v;             // [B, Sk, HK, DV], or [Tk, HK, DV]
  const void* cu_seqlens_q;  // [N + 1]
  const void* cu_seqlens_k;  // [N + 1]
  const void* alibi_slopes;  // float32 [H] or [B, H]
  const void* sinks;         // float32 [H]
  const void* capture[4];    // [C0] .. [C3]
  void* visits;              // int32 [lists, visits_stride]: see attention/visits.cuh
  void* visit_counts;        // int32 [lists], one for each tile
  void* out;                 // [B, Sq, H, DV], or [Tq, H, DV]
  void* lse;                 // float32 [B, H, Sq], or [H, Tq]; natural logarithm
  long long q_batch_stride, q_token_stride, q_head_stride;  // in elements; widths are contiguous
  long long k_batch_stride, k_token_stride, k_head_stride;
  long long v_batch_stride, v_token_stride, v_head_stride;
  long long out_batch_stride, out_token_stride, out_head_stride;
  long long alibi_batch_stride;  // 0: one slope a head
  long long visits_stride;       // in entries
  int capture_count[4];          // C0 .. C3; reading elsewhere gives 0
  float scalar[4];
  int first_head, reserved;
  int sequences, heads, kv_heads;
  int seq_q, seq_k;         // of every sequence; packed: Tq and Tk, capacities
  int head_dim, value_dim;  // D and DV, multiples of 8, at most the widths the kernel was made for
  int window_left, window_right;
  int tiles;                     // row tiles of one sequence that the grid has, at capacity
  float softmax_scale, softcap;  // softcap 0: none
};

// Keys and values in pages, for flash_attention_decode: position j of sequence b is row j % page of
// page block_table[b, j / page]. The sequence has cache_seqlens[b] keys, and `appended` more once
// the new ones are there. Lengths and pages are on the device and checked by nobody: lengths are
// cut to what the table can hold, and a page outside [0, pages) is not written and read as zeros.
struct AttentionPages {
  const void* block_table;    // int32 [B, M]
  const void* cache_seqlens;  // int32 [B]
  unsigned magic;             // n / page = (high word of n * magic + n) >> shift, 0 <= n < 2^31
  int shift;
  int page, pages;  // rows of a page, at least 1, and P
  int table_width;  // M
  int most_keys;    // of a sequence: M * page
};

// A rotary embedding of the first `columns` columns of queries and new keys: pair i of a token at
// position t turns by the angle whose cosine and sine are in row t of the tables. A position
// outside of them is taken for the nearest one inside.
struct AttentionRotary {
  const void* cos;        // [rows, columns / 2]
  const void* sin;        // [rows, columns / 2]
  const void* positions;  // int32 [Tq], or [B], the first row's; null: as the cache is long
  int columns, rows;
  int of_rows;  // the positions are those of each row
  int reserved;
};

// What the codes of a cache in e4m3 are multiplied by: one number, one for each of HK heads (then
// the stride is 1), or one for each row of a page and head.
struct AttentionScales {
  void* k;  // float32 [1], [HK] or [P, page, HK]
  void* v;
  int k_stride, v_stride;
};

struct AttentionAppendParams {
  const void* k_new;         // [B, Sq, HK, D], or packed [Tq, HK, D]
  const void* v_new;         // [B, Sq, HK, DV], or [Tq, HK, DV]
  const void* cu_seqlens_q;  // [B + 1]
  void* k_cache;             // [P, page, HK, D]
  void* v_cache;             // [P, page, HK, DV]
  AttentionPages pages;
  AttentionRotary rotary;
  AttentionScales scales;
  long long k_batch_stride, k_token_stride, k_head_stride;  // of the new ones, in words
  long long v_batch_stride, v_token_stride, v_head_stride;
  long long k_page_stride, k_row_stride, k_cache_head_stride;
  long long v_page_stride, v_row_stride, v_cache_head_stride;
  int seq_q, kv_heads;   // packed: Tq
  int sequences, words;  // B, and elements of a word
  int k_words, v_words;  // of one head: 16 bytes, or what Config::kAlignment says
};

struct AttentionDecodeParams {
  // With k and v the caches, a page being what a sequence is elsewhere: k_batch_stride is from page
  // to page, k_token_stride from row to row of one. tiles: of one key head. seq_k is not used.
  // Packed: seq_q is Tq, and tiles are those of one key head over all sequences, one more for each
  // and one for padding.
  AttentionForwardParams forward;
  AttentionPages pages;
  AttentionRotary rotary;
  AttentionScales scales;
  const void* leftpad;        // int32 [B]: the first key that counts
  const void* total_seqlens;  // int32 [B]: keys over all ranks
  // float32 [splits, B, H, Sq, DV] and [splits, B, H, Sq] if there are splits; packed [slots, rows
  // of a slot, DV] and [slots, rows of a slot].
  void* partial_out;
  void* partial_lse;
  int key_stride, key_offset;  // key j is key j * key_stride + key_offset of the sequence
  int appended;                // rows of the call, or packed: not 0 if those of the sequence
  int splits;                  // parts of the key blocks of each tile; packed: if share is 0
  // Packed: the tiles of more than one split, and how many slots they have.
  void* combine_list;  // AttentionCombineEntry [slots]
  void* used_slots;    // int32 [1]
  int share;           // thread blocks that the keys of all tiles are shared out to; 0: see splits
  int slots;           // of partial results that there is room for
};

// A slot holds partial results of `rows` rows from `first` on. count: their splits, in this slot
// and those behind it; 0 for the slots of other splits than the first. stride: from a row to the
// same one of the next split, in rows of partial results.
struct AttentionCombineEntry {
  int sequence, first, head, count, stride, rows;
};

struct AttentionCombineParams {
  const void* partial_out;  // as above
  const void* partial_lse;
  const void* sinks;         // float32 [H]
  const void* cu_seqlens_q;  // [B + 1]
  void* out;                 // [B, Sq, H, DV], or packed [Tq, H, DV]
  void* lse;                 // float32 [B, H, Sq], or [H, Tq]
  // Packed: partial results are those of tiles, which the attention has listed.
  const void* combine_list;
  const void* used_slots;
  long long rows;  // B * H * Sq
  long long out_batch_stride, out_token_stride, out_head_stride;
  int heads, seq_q, value_dim;
  int sequences;  // B
  int reserved;
  int splits;               // at most 256
  int kv_heads, tile_rows;  // packed: of a slot
};

// One call of each function of a mod.
struct ModProbeParams {
  float* out;  // [2]
  const void* capture[4];
  int capture_count[4];
  float scalar[4];
  float score;
  int first_head;
  int batch, head, q_idx, kv_idx;
};

// A step of a ring: the forward that goes on from (out, lse), float32 and contiguous in its last
// dimension, and stores them again. seq_q rows and seq_k keys are parts of a longer sequence, or of
// several: which row sees which key follows from ranges or from positions, which are the same in
// every row of a batch of `sequences`.
struct AttentionBlockParams {
  AttentionForwardParams forward;
  const void* ranges;  // int32 [NP, 7]: qa, qb, ka, kb, shift, q0, k0; see attention/ranges.cuh
  const void* range_batches;  // int32 [NP]: what mods are told; null: the row of the batch
  const void* q_positions;    // int32 [Tq]
  const void* k_positions;    // int32 [Tk]
  const void* key_ranges;     // int32 [key blocks, 2]: least and greatest of k_positions
  int range_count;
  int first;  // nothing to go on from: out and lse are not read
};

// Least and greatest of each run of `run` positions.
struct AttentionPositionsParams {
  const void* positions;  // int32 [count]
  void* ranges;           // int32 [ceil(count / run), 2]
  int count, run;
};

}  // namespace lathe
