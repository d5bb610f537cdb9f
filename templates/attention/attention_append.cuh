// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// attention_append: new keys and values into the pages of their sequences, bit for bit.
//
//   position = cache_seqlens[b] + t;  page = block_table[b, position / page];  row = position %
//   page k_cache[page, row] = k_new[b, t];  v_cache[page, row] = v_new[b, t]
//
// A block copies one token, all heads of both, a word a thread: 16 bytes or, with tensors that are
// aligned to fewer, those; a token whose position or page is
// out of range is dropped. A kernel of its own, before attention, because all heads and splits of
// that read the new rows. The element type does not matter to it: strides are in words.
#pragma once
#include "attention/pages.cuh"

namespace lathe {

// Heads of one token, `words` each.
template <class Config, class Word>
__device__ __forceinline__ void append_heads(Word* to, long long to_stride, const Word* from,
                                             long long from_stride, int words, int heads) {
  for (int i = threadIdx.x; i < heads * words; i += Config::kThreads) {
    const int head = i / words, word = i % words;
    Word data;
    load_global(from + head * from_stride + word, data);
    store_global(to + head * to_stride + word, data);
  }
}

template <class Config>
__device__ void attention_append(const AttentionAppendParams& p) {
  using Word = Words<PromiseOf<Config>::kBytes>;
  const int b = static_cast<int>(blockIdx.x / p.seq_q), t = static_cast<int>(blockIdx.x % p.seq_q);
  const PageTable table(p.pages, b);
  const int stored = table.stored();
  if (stored < 0 || stored >= p.pages.most_keys - t) return;
  const KeyAddress address = table.address(stored + t, table.entry(stored + t));
  if (address.page < 0) return;
  append_heads<Config>(
      static_cast<Word*>(p.k_cache) + address.page * p.k_page_stride + address.row * p.k_row_stride,
      p.k_cache_head_stride,
      static_cast<const Word*>(p.k_new) + b * p.k_batch_stride + t * p.k_token_stride,
      p.k_head_stride, p.k_words, p.kv_heads);
  append_heads<Config>(
      static_cast<Word*>(p.v_cache) + address.page * p.v_page_stride + address.row * p.v_row_stride,
      p.v_cache_head_stride,
      static_cast<const Word*>(p.v_new) + b * p.v_batch_stride + t * p.v_token_stride,
      p.v_head_stride, p.v_words, p.kv_heads);
}

}  // namespace lathe
