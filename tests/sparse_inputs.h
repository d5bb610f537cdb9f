// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file makes random problems of sparse attention, with lists of every kind.
#pragma once

#include <algorithm>
#include <climits>
#include <cmath>
#include <random>
#include <vector>

#include "reference/sparse_attention.h"
#include "tests/numbers.h"

namespace sparse_case {

// Says what a list names, beside random keys of the row's sequence.
enum class Lists {
  mixed,      // entries of every kind, anywhere: negative, past the end, named twice
  nothing,    // -1
  one_key,    // one key, topk times
  last_only,  // -1 but for the last entry
  all         // 0, 1, 2, ... (and -1 behind the last)
};

struct Shape {
  std::vector<int> rows, keys;  // by sequence; without `packed` all alike
  int padding_q = 0, padding_k = 0;
  int kv_heads = 1, group = 1;
  int head_dim = 64, rope_dim = 0, value_dim = 64;
  int topk = 32, block = 1;
  bool packed = false, causal = false, absolute = false, q_pos = false, sinks = false;
  bool values_in_keys = false;  // v is the first value_dim columns of k
  Lists lists = Lists::mixed;
};

inline int entry_of(const Shape& s, int place, int keys, int origin, std::mt19937& random) {
  const auto below = [&](int most) { return static_cast<int>(random() % std::max(most, 1)); };
  const int entries = (keys + s.block - 1) / s.block, first = s.absolute ? origin : 0;
  const int some = first + below(entries);
  switch (s.lists) {
    case Lists::nothing:
      return -1;
    case Lists::one_key:
      return first + entries / 2;
    case Lists::last_only:
      return place + 1 == s.topk ? some : -1;
    case Lists::all:
      return place < entries ? first + place : -1;
    case Lists::mixed:
      break;
  }
  switch (below(12)) {
    case 0:
      return -1;
    case 1:
      return INT_MIN + below(3);
    case 2:
      return INT_MAX - below(3);
    case 3:
      return first + entries + below(3);
    case 4:
      return first - 1;
    case 5:
      return first + entries - 1;
    default:
      return some;
  }
}

// Makes inputs rounded to the type. Keys that no list names, and padding, are NaN: they must reach
// nothing.
inline ref::SparseAttention make(const Shape& s, lathe_dtype dtype, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  ref::SparseAttention a;
  a.heads = s.kv_heads * s.group, a.kv_heads = s.kv_heads;
  a.head_dim = s.head_dim, a.rope_dim = s.rope_dim, a.value_dim = s.value_dim;
  a.topk = s.topk, a.block = s.block, a.packed = s.packed, a.causal = s.causal;
  a.absolute = s.absolute, a.scale = 1 / std::sqrt(static_cast<double>(s.head_dim + s.rope_dim));
  a.begin_q = {0};
  int64_t keys = 0;
  for (size_t n = 0; n < s.rows.size(); ++n) {
    a.begin_q.push_back(a.begin_q.back() + s.rows[n]);
    a.begin_k.push_back(keys), a.end_k.push_back(keys += s.keys[n]);
  }
  const int64_t rows = a.begin_q.back() + s.padding_q, all_keys = keys + s.padding_k;
  const auto fill = [&](ref::Array* x, int64_t tokens, int64_t real, int64_t row) {
    for (int64_t i = 0; i < tokens * row; ++i) {
      x->push_back(i < real * row ? numbers::rounded(dtype, normal(random)) : std::nan(""));
    }
  };
  fill(&a.q, rows, a.begin_q.back(), a.heads * s.head_dim);
  fill(&a.q_rope, rows, a.begin_q.back(), a.heads * s.rope_dim);
  fill(&a.dout, rows, a.begin_q.back(), a.heads * s.value_dim);
  fill(&a.k, all_keys, all_keys, s.kv_heads * s.head_dim);
  fill(&a.k_rope, all_keys, all_keys, s.kv_heads * s.rope_dim);
  if (!s.values_in_keys) fill(&a.v, all_keys, all_keys, s.kv_heads * s.value_dim);
  a.indices.assign(static_cast<size_t>(rows * s.kv_heads * s.topk), 0);
  for (size_t n = 0; n < s.rows.size(); ++n) {
    for (int64_t i = a.begin_q[n] * s.kv_heads * s.topk; i < a.begin_q[n + 1] * s.kv_heads * s.topk;
         ++i) {
      a.indices[static_cast<size_t>(i)] = entry_of(s, static_cast<int>(i % s.topk), s.keys[n],
                                                   static_cast<int>(a.begin_k[n]), random);
    }
  }
  for (int64_t i = 0; s.q_pos && i < rows; ++i) {
    const int most = s.keys.empty() ? 4 : s.keys[0] + 4;
    a.q_pos.push_back(i % 7 == 5 ? -1 - static_cast<int>(i) : static_cast<int>(random() % most));
  }
  for (int h = 0; s.sinks && h < a.heads; ++h) {
    a.sinks.push_back(h % 3 == 1 ? -ref::kInfinity : static_cast<float>(normal(random)));
  }

  std::vector<bool> named(static_cast<size_t>(all_keys * s.kv_heads));
  ref::each_row(a, [&](int64_t, const ref::SparseRow& row) {
    for (const int64_t j : row.named()) named[row.key(j, 1)] = true;
  });
  for (auto& [x, width] : {std::pair(&a.k, s.head_dim), std::pair(&a.k_rope, s.rope_dim),
                           std::pair(&a.v, s.value_dim)}) {
    for (size_t i = 0; i < x->size(); ++i) {
      if (!named[i / static_cast<size_t>(width)]) (*x)[i] = std::nan("");
    }
  }
  for (size_t i = 0; s.values_in_keys && i < named.size(); ++i) {
    const auto from = a.k.begin() + static_cast<std::ptrdiff_t>(i) * s.head_dim;
    a.v.insert(a.v.end(), from, from + s.value_dim);
  }
  return a;
}

}  // namespace sparse_case
