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
// that read the new rows. The element type does not matter to it, strides are in words, except
// where a rotary embedding turns the keys.
#pragma once
#include "attention/decode/rotary.cuh"

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

// The same of keys, turned: the thread has pairs of the columns that turn, then the other columns.
template <class Config>
__device__ __forceinline__ void append_turned(const AttentionAppendParams& p,
                                              typename Config::Element* to, long long to_stride,
                                              const typename Config::Element* from,
                                              long long from_stride, int position) {
  using Element = typename Config::Element;
  const AttentionRotary& rotary = p.rotary;
  const int pairs = rotary.columns / 2, width = p.k_words * p.words;
  for (int i = threadIdx.x; i < p.kv_heads * (width - pairs); i += Config::kThreads) {
    const int head = i / (width - pairs), item = i % (width - pairs);
    const Element* row = from + head * from_stride;
    Element* out = to + head * to_stride;
    if (item >= pairs) {
      store_element(out + item + pairs, load_element(row + item + pairs));
      continue;
    }
    const int first = rotary_column<Config>(rotary, item, 0);
    const int second = rotary_column<Config>(rotary, item, 1);
    float a = to_float(load_element(row + first)), b = to_float(load_element(row + second));
    rotate_pair<Config>(rotary, position, item, a, b);
    store_element(out + first, from_float<Element>(a));
    store_element(out + second, from_float<Element>(b));
  }
}

// A token of the call: row `row` of sequence b, which begins at row `start`.
struct AppendedToken {
  int b, start, row;
};
template <class Config>
__device__ __forceinline__ AppendedToken appended_token(const AttentionAppendParams& p) {
  const int t = static_cast<int>(blockIdx.x);
  if constexpr (IsRagged<Config>::kValue) {
    using Offset = typename Config::CuSeqlens;
    const Sequence of = find_sequence<Offset>(p.cu_seqlens_q, p.sequences, p.seq_q, t);
    const bool there = t < offset_at<Offset>(p.cu_seqlens_q, of.index + 1, p.seq_q);
    return {there ? of.index : -1, of.start, t - of.start};
  } else {
    return {t / p.seq_q, t - t % p.seq_q, t % p.seq_q};
  }
}

// Where a token goes; `stored`: keys of its sequence before the call. An absent page: it is
// padding, or beyond what the table holds.
struct AppendAddress {
  int stored;
  KeyAddress to;
};
__device__ __forceinline__ AppendAddress append_address(const AttentionAppendParams& p,
                                                        const AppendedToken& token) {
  if (token.b < 0) return {0, {-1, 0}};
  const PageTable table(p.pages, token.b);
  const int stored = table.stored(), at = stored + token.row;
  if (stored < 0 || stored >= p.pages.most_keys - token.row) return {stored, {-1, 0}};
  return {stored, table.address(at, table.entry(at))};
}

template <class Config>
__device__ void attention_append(const AttentionAppendParams& p) {
  using Word = Words<PromiseOf<Config>::kBytes>;
  const AppendedToken token = appended_token<Config>(p);
  const auto [stored, address] = append_address(p, token);
  if (address.page < 0) return;
  const int batch = IsRagged<Config>::kValue ? 0 : token.b;
  const int t = IsRagged<Config>::kValue ? token.start + token.row : token.row;
  Word* const k_to =
      static_cast<Word*>(p.k_cache) + address.page * p.k_page_stride + address.row * p.k_row_stride;
  const Word* const k_from =
      static_cast<const Word*>(p.k_new) + batch * p.k_batch_stride + t * p.k_token_stride;
  if constexpr (IsRotary<Config>::kValue) {
    using Element = typename Config::Element;
    append_turned<Config>(p, reinterpret_cast<Element*>(k_to), p.k_cache_head_stride * p.words,
                          reinterpret_cast<const Element*>(k_from), p.k_head_stride * p.words,
                          rotary_position(p.rotary, token.b, token.start, token.row, stored));
  } else {
    append_heads<Config>(k_to, p.k_cache_head_stride, k_from, p.k_head_stride, p.k_words,
                         p.kv_heads);
  }
  append_heads<Config>(
      static_cast<Word*>(p.v_cache) + address.page * p.v_page_stride + address.row * p.v_row_stride,
      p.v_cache_head_stride,
      static_cast<const Word*>(p.v_new) + batch * p.v_batch_stride + t * p.v_token_stride,
      p.v_head_stride, p.v_words, p.kv_heads);
}

}  // namespace lathe
