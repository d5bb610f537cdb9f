// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What the host hands to the kernels of flash_attention_decode. Widest fields first, no holes; each
// emitted unit asserts the size and the offset of the last field.
//
// The keys of sequence b lie in pages: position j is row j % page of page block_table[b, j / page].
// It has cache_seqlens[b] of them, and seq_q more once the new ones are appended; seq_q query rows
// are aligned to the last of them as in params/attention.h. Lengths and page numbers are on the
// device and checked by nobody: lengths are cut to what the table can hold, and a page that is not
// in [0, pages) is written by nobody and read as zeros.
#pragma once

namespace lathe {

// n / page of 0 <= n < 2^31 as (high word of n * magic + n) >> shift.
struct AttentionPages {
  const void* block_table;    // int32 [B, M]
  const void* cache_seqlens;  // int32 [B]
  unsigned magic;
  int shift;
  int page;   // rows of one page, at least 1
  int pages;  // P
  int table_width;  // M
  int most_keys;    // M * page, or 2^31 - 1 if that is less
};

struct AttentionAppendParams {
  const void* k_new;  // [B, Sq, HK, D]
  const void* v_new;  // [B, Sq, HK, DV]
  void* k_cache;      // [P, page, HK, D]
  void* v_cache;      // [P, page, HK, DV]
  AttentionPages pages;
  long long k_batch_stride, k_token_stride, k_head_stride;  // of the new ones, in 16 bytes
  long long v_batch_stride, v_token_stride, v_head_stride;
  long long k_page_stride, k_row_stride, k_cache_head_stride;
  long long v_page_stride, v_row_stride, v_cache_head_stride;
  int seq_q, kv_heads;
  int k_words, v_words;  // 16 bytes each, of one head
};

struct AttentionDecodeParams {
  const void* q;             // [B, Sq, H, D]
  const void* k;             // k_cache [P, page, HK, D]
  const void* v;             // v_cache [P, page, HK, DV]
  const void* alibi_slopes;  // float32 [H] or [B, H]
  const void* sinks;         // float32 [H]
  void* out;                 // [B, Sq, H, DV]
  void* lse;                 // float32 [B, H, Sq]; natural logarithm
  void* partial_out;         // float32 [splits, B, H, Sq, DV], if splits > 1
  void* partial_lse;         // float32 [splits, B, H, Sq]
  AttentionPages pages;
  long long q_batch_stride, q_token_stride, q_head_stride;  // in elements; widths are contiguous
  long long k_page_stride, k_row_stride, k_head_stride;
  long long v_page_stride, v_row_stride, v_head_stride;
  long long out_batch_stride, out_token_stride, out_head_stride;
  long long alibi_batch_stride;  // 0: one slope a head
  int sequences, heads, kv_heads;
  int seq_q;
  int appended;             // keys behind cache_seqlens: seq_q or 0
  int head_dim, value_dim;  // D and DV, multiples of 8, at most the widths the kernel was made for
  int window_left, window_right;
  int tiles;   // row tiles of one key head
  int splits;  // parts of the key blocks of each tile
  float softmax_scale, softcap;  // softcap 0: none
};

struct AttentionCombineParams {
  const void* partial_out;  // float32 [splits, B, H, Sq, DV]
  const void* partial_lse;  // float32 [splits, B, H, Sq]
  const void* sinks;        // float32 [H]
  void* out;                // [B, Sq, H, DV]
  void* lse;                // float32 [B, H, Sq]
  long long rows;           // B * H * Sq
  long long out_batch_stride, out_token_stride, out_head_stride;
  int heads, seq_q, value_dim;
  int splits;  // at most 256
};

}  // namespace lathe
