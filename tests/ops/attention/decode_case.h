// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds one case of flash_attention_decode, described in a line: caches in shuffled
// pages, where whatever no sequence owns holds NaN, the call through lathe.h, and the comparison
// with attention over the same keys in one piece, in float64.
#pragma once

#include "reference/attention.h"
#include "tests/harness/call.h"

namespace apitest {

struct DecodeCase {
  lathe_dtype dtype = LATHE_BF16;
  int64_t queries = 1, kv_heads = 1, ratio = 1, head_dim = 64, value_dim = 64;
  int64_t page = 16, table_width = 12;
  std::vector<int64_t> cached = {100, 37};  // keys of each sequence before the append
  bool append = false;
  std::vector<int64_t> rows;  // packed: of each sequence; empty: all have `queries`
  int64_t padding = 0;        // packed: rows behind the last sequence, which are NaN
  lathe_dtype cu_dtype = LATHE_I32;
  bool leftpad = false;    // some of each sequence's first keys do not count, and are NaN
  int64_t key_stride = 0;  // 0: one rank has all keys
  int64_t key_offset = 0;
  enum Positions { by_length, of_sequences, of_rows } positions = by_length;
  int64_t rotary = 0;  // columns that turn
  bool interleaved = false;
  // The cache in 8 bits: codes with one scale, one a head or one a row, or rows of bytes.
  enum Narrow { wide, one_scale, head_scales, row_scales, byte_rows } narrow = wide;
  bool latent = false;  // values are the first columns of the keys, and have no cache
  bool causal = false, sinks = false;
  int64_t window_left = -1, window_right = -1;
  double softcap = 0;
  enum Slopes { none, per_head, per_sequence } slopes = none;
  bool wild_entries = true;  // of the table, behind the pages in use; else a page that is there
  std::string splits = "0";
  Placement gaps;
  bool fixed = false;  // all extents are declared, so that there is one kernel
  std::string tile;    // "": the default
  uint32_t seed = 1;

  int64_t batch() const { return static_cast<int64_t>(cached.size()); }
  int64_t heads() const { return kv_heads * ratio; }
  bool packed() const { return !rows.empty() || padding > 0; }
  int64_t rows_of(int64_t b) const { return packed() ? rows[static_cast<size_t>(b)] : queries; }
  int64_t keys(int64_t b) const {
    return cached[static_cast<size_t>(b)] + (append ? rows_of(b) : 0);
  }
  std::string text() const;
};

struct DecodeInputs {
  ref::Attention whole;
  Values q, slopes;  // as the call has them: not turned
  Values k_cache, v_cache, k_new, v_new, table;
  Values k_scale, v_scale;  // of a cache in 8 bits, whose caches hold codes, or bytes
  Values k_codes, v_codes;  // of every key of the whole
  Values k_scale_after, v_scale_after, k_after;
  Values leftpad, total, cosines, sines, positions;
  int64_t pages = 0;
  std::vector<int64_t> rows;  // of every key of the whole, in the caches
};
DecodeInputs make_decode(const DecodeCase& decode);

// Narrow the cache of finished inputs, put it into a call in the place of the wide one, and check
// what the call has made of it.
void narrow_cache(const DecodeCase& decode, DecodeInputs* inputs);
void put_narrow(const DecodeCase& decode, const DecodeInputs& inputs, Call* call);
void check_narrow(const DecodeCase& decode, const DecodeInputs& inputs, const Answer& answer);

Call decode_call(const DecodeCase& decode, const DecodeInputs& inputs);
Answer run_decode(const DecodeCase& decode, const DecodeInputs& inputs);

// Makes doctest CHECKs: out and lse; the caches, which hold what the append brought and otherwise
// what they held; and what the simulator found.
void check_decode(const DecodeCase& decode, const DecodeInputs& inputs, const Answer& answer);
void check_decode_results(const DecodeCase& decode, const DecodeInputs& inputs,
                          const Answer& answer);  // out and lse alone

}  // namespace apitest
