// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Gathers the listed keys and computes textbook attention over them: every row and key head is a
// sequence of its own, of one query and the keys it names, rotary columns behind the others. With
// each step rounded to the element type it is the plain computation of sparse attention, whose
// error bounds a kernel's; without rounding, a second definition.
#pragma once

#include "reference/attention_plain.h"
#include "reference/sparse_attention.h"

namespace ref {

struct Gathered {
  Attention attention;                 // [row of the list][G], one key head
  std::vector<size_t> row, statistic;  // of each gathered row and head: (token, head), statistics
  std::vector<size_t> lse, key;        // of each gathered key: (key row, key head)
};

// Returns the rows of the heads of one key head.
inline Gathered gather(const SparseAttention& a, int64_t kv_head) {
  Gathered out;
  Attention& d = out.attention;
  const int64_t width = a.head_dim + a.rope_dim;
  d.heads = a.group(), d.kv_heads = 1, d.head_dim = width, d.value_dim = a.value_dim;
  d.scale = a.scale;
  d.begin_q = d.begin_k = {0};
  if (!a.sinks.empty()) {
    const auto first = a.sinks.begin() + kv_head * a.group();
    d.sinks.assign(first, first + a.group());
  }
  const auto append = [](Array* to, const Array& from, size_t at, int64_t count) {
    to->insert(to->end(), from.begin() + static_cast<std::ptrdiff_t>(at),
               from.begin() + static_cast<std::ptrdiff_t>(at) + count);
  };
  each_row(a, [&](int64_t h, const SparseRow& row) {
    if (h != kv_head * a.group()) return;
    for (int64_t g = 0; g < a.group(); ++g) {
      // Heads follow each other in all layouts of rows; in those of lse they do not.
      const size_t at = row.query(1) + static_cast<size_t>(g);
      out.row.push_back(at), out.statistic.push_back(row.statistic() + static_cast<size_t>(g));
      out.lse.push_back(row.lse() + static_cast<size_t>(g * row.head_stride()));
      append(&d.q, a.q, at * static_cast<size_t>(a.head_dim), a.head_dim);
      if (a.rope_dim > 0) append(&d.q, a.q_rope, at * static_cast<size_t>(a.rope_dim), a.rope_dim);
      if (!a.dout.empty()) {
        append(&d.dout, a.dout, at * static_cast<size_t>(a.value_dim), a.value_dim);
      }
    }
    for (const int64_t j : row.named()) {
      const size_t at = row.key(j, 1);
      out.key.push_back(at);
      append(&d.k, a.k, at * static_cast<size_t>(a.head_dim), a.head_dim);
      if (a.rope_dim > 0) append(&d.k, a.k_rope, at * static_cast<size_t>(a.rope_dim), a.rope_dim);
      append(&d.v, a.v, at * static_cast<size_t>(a.value_dim), a.value_dim);
    }
    d.begin_q.push_back(d.begin_q.back() + 1);
    d.begin_k.push_back(static_cast<int64_t>(out.key.size()));
  });
  return out;
}

namespace detail {

// Adds columns first.. of row i of `from` to row at[i] of `to`. Rows of `to` have `width` columns,
// rows of `from` have `all`.
inline void put_rows(Array* to, const std::vector<size_t>& at, const Array& from, int64_t all,
                     int64_t first, int64_t width) {
  for (size_t i = 0; i < at.size(); ++i) {
    for (int64_t c = 0; c < width; ++c) {
      (*to)[at[i] * static_cast<size_t>(width) + static_cast<size_t>(c)] +=
          from[i * static_cast<size_t>(all) + static_cast<size_t>(first + c)];
    }
  }
}

}  // namespace detail

// out alone: statistics are of float32.
inline Array sparse_plain_out(const SparseAttention& a, Round round) {
  Array out(static_cast<size_t>(a.rows() * a.heads * a.value_dim), 0.0);
  for (int64_t hk = 0; hk < a.kv_heads; ++hk) {
    const Gathered rows = gather(a, hk);
    const AttentionForward forward = plain_forward(rows.attention, round);
    detail::put_rows(&out, rows.row, forward.out, a.value_dim, 0, a.value_dim);
  }
  return out;
}

// A key's gradients are sums over its rows, rounded to the element type at the end.
inline SparseBackward sparse_plain_backward(const SparseAttention& a, Round round) {
  const int64_t d = a.head_dim, r = a.rope_dim, dv = a.value_dim;
  SparseBackward result;
  result.dq.assign(a.q.size(), 0.0), result.dk.assign(a.k.size(), 0.0);
  result.dv.assign(a.v.size(), 0.0);
  result.dq_rope.assign(a.q_rope.size(), 0.0), result.dk_rope.assign(a.k_rope.size(), 0.0);
  for (int64_t hk = 0; hk < a.kv_heads; ++hk) {
    const Gathered rows = gather(a, hk);
    const AttentionBackward backward = plain_backward(rows.attention, round);
    detail::put_rows(&result.dq, rows.row, backward.dq, d + r, 0, d);
    detail::put_rows(&result.dk, rows.key, backward.dk, d + r, 0, d);
    detail::put_rows(&result.dv, rows.key, backward.dv, dv, 0, dv);
    if (r > 0) {
      detail::put_rows(&result.dq_rope, rows.row, backward.dq, d + r, d, r);
      detail::put_rows(&result.dk_rope, rows.key, backward.dk, d + r, d, r);
    }
    result.dsinks.insert(result.dsinks.end(), backward.dsinks.begin(), backward.dsinks.end());
  }
  for (Array* gradient : {&result.dk, &result.dv, &result.dk_rope}) {
    detail::round_all(gradient, round);
  }
  return result;
}

}  // namespace ref
