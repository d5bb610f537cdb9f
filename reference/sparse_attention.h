// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// sparse_flash_attention in double, by plain loops over the definition; nothing is shared with the
// kernels.
//
// Rows lie on one flat axis, sequence n holding [begin_q[n], begin_q[n + 1]); its keys are
// [begin_k[n], end_k[n]) of another, and those of two sequences may overlap. A batch of B rows of S
// is the case begin = 0, S, 2S, ...; only the statistics are laid out differently. Rows past the
// last offset are padding. Entry e of a row's list names, in order and with multiplicity,
//
//   e < 0      nothing
//   sequence   tokens e bs .. e bs + bs - 1 of the row's sequence that are there, bs = block
//   absolute   row e of the key tensor, if it is of the row's sequence
//
// and with `causal` none behind the row's position, q_pos or (Lk - Lq) + i. Over what is left,
//
//   x_j = scale (q . k_j + q_rope . k_rope_j)    m = max(x_j, sink)    l = sum e^(x_j - m) (+ sink)
//   out = sum e^(x_j - m) v_j / l,  lse = m + ln l;  without any: out 0, m -inf, l 0, lse -inf
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "reference/attention.h"

namespace ref {

struct SparseAttention {
  int64_t heads = 1, kv_heads = 1, head_dim = 8, rope_dim = 0, value_dim = 8, topk = 1;
  std::vector<int64_t> begin_q, begin_k, end_k;  // sequences + 1 offsets; of keys, one a sequence
  bool packed = true;                            // the order of lse and of the statistics
  double scale = 1;
  bool causal = false, absolute = false;
  int64_t block = 1;
  Array q, k, v;                 // [rows, H, D], [keys, HK, D], [keys, HK, DV]
  Array q_rope, k_rope;          // [rows, H, R], [keys, HK, R]; empty: absent
  std::vector<int32_t> indices;  // [rows, HK, topk]
  std::vector<int32_t> q_pos;    // [rows]; empty: absent
  Array sinks;                   // [H]; empty: absent
  Array dout;                    // shape of out; empty: absent

  int64_t sequences() const { return static_cast<int64_t>(begin_q.size()) - 1; }
  int64_t rows() const { return static_cast<int64_t>(q.size()) / (heads * head_dim); }
  int64_t keys() const { return static_cast<int64_t>(k.size()) / (kv_heads * head_dim); }
  int64_t group() const { return heads / kv_heads; }
  int64_t queries(int64_t n) const { return begin_q[n + 1] - begin_q[n]; }
  int64_t keys(int64_t n) const { return std::max<int64_t>(end_k[n] - begin_k[n], 0); }
};

struct SparseForward {
  Array out, softmax_max, softmax_sum, lse;
};
struct SparseBackward {
  Array dq, dk, dv, dq_rope, dk_rope, dsinks;
};

// One query row of one head: where things lie, and the keys that its list names.
class SparseRow {
 public:
  SparseRow(const SparseAttention& of, int64_t sequence, int64_t head, int64_t row)
      : a_(of), n_(sequence), h_(head), i_(row) {}

  int64_t token() const { return a_.begin_q[n_] + i_; }
  size_t query(int64_t width) const {
    return static_cast<size_t>((token() * a_.heads + h_) * width);
  }
  // Returns the offset of row `key` in the key tensor.
  size_t key(int64_t key, int64_t width) const {
    return static_cast<size_t>((key * a_.kv_heads + h_ / a_.group()) * width);
  }
  // [B, H, S1] or [H, T1]; [B, HK, S1, G] or [HK, T1, G].
  size_t lse() const {
    if (a_.packed) return static_cast<size_t>(h_ * a_.rows() + token());
    return static_cast<size_t>((n_ * a_.heads + h_) * a_.queries(n_) + i_);
  }
  int64_t head_stride() const { return a_.packed ? a_.rows() : a_.queries(n_); }  // of lse
  size_t statistic() const {
    const int64_t hk = h_ / a_.group(), g = h_ % a_.group();
    if (a_.packed) return static_cast<size_t>((hk * a_.rows() + token()) * a_.group() + g);
    return static_cast<size_t>(((n_ * a_.kv_heads + hk) * a_.queries(n_) + i_) * a_.group() + g);
  }

  // Returns the rows of the key tensor that the list names.
  std::vector<int64_t> named() const {
    const int64_t length = a_.keys(n_), begin = a_.begin_k[n_];
    const int64_t position = a_.q_pos.empty() ? length - a_.queries(n_) + i_
                                              : int64_t{a_.q_pos[static_cast<size_t>(token())]};
    std::vector<int64_t> out;
    const size_t list = static_cast<size_t>((token() * a_.kv_heads + h_ / a_.group()) * a_.topk);
    for (int64_t place = 0; place < a_.topk; ++place) {
      const int64_t entry = a_.indices[list + static_cast<size_t>(place)];
      if (entry < 0) continue;
      const int64_t first = a_.absolute ? entry - begin : entry * a_.block;
      for (int64_t j = first; j < first + (a_.absolute ? 1 : a_.block); ++j) {
        if (j < 0 || j >= length || (a_.causal && j > position)) continue;
        out.push_back(begin + j);
      }
    }
    return out;
  }
  double sink() const { return a_.sinks.empty() ? -kInfinity : a_.sinks[static_cast<size_t>(h_)]; }
  double score(int64_t j) const {
    const int64_t d = a_.head_dim, r = a_.rope_dim;
    double sum = dot(&a_.q[query(d)], &a_.k[key(j, d)], d);
    if (r > 0) sum += dot(&a_.q_rope[query(r)], &a_.k_rope[key(j, r)], r);
    return a_.scale * sum;
  }

 private:
  const SparseAttention& a_;
  int64_t n_, h_, i_;
};

template <typename Body>
void each_row(const SparseAttention& a, Body body) {
  for (int64_t n = 0; n < a.sequences(); ++n) {
    for (int64_t h = 0; h < a.heads; ++h) {
      for (int64_t i = 0; i < a.queries(n); ++i) body(h, SparseRow(a, n, h, i));
    }
  }
}

inline SparseForward sparse_forward(const SparseAttention& a) {
  SparseForward result;
  const size_t rows = static_cast<size_t>(a.rows() * a.heads);
  result.out.assign(rows * static_cast<size_t>(a.value_dim), 0.0);
  result.softmax_max.assign(rows, -kInfinity);
  result.softmax_sum.assign(rows, 0.0);
  result.lse.assign(rows, -kInfinity);
  each_row(a, [&](int64_t, const SparseRow& row) {
    const std::vector<int64_t> named = row.named();
    Array x;
    double largest = row.sink();
    for (const int64_t j : named) {
      x.push_back(row.score(j));
      largest = std::isnan(x.back()) ? x.back() : std::max(largest, x.back());
    }
    if (largest == -kInfinity) return;
    double sum = std::exp(row.sink() - largest);
    for (const double score : x) sum += std::exp(score - largest);
    result.softmax_max[row.statistic()] = largest;
    result.softmax_sum[row.statistic()] = sum;
    result.lse[row.lse()] = largest + std::log(sum);
    for (size_t e = 0; e < named.size(); ++e) {
      add_scaled(&result.out[row.query(a.value_dim)], std::exp(x[e] - largest) / sum,
                 &a.v[row.key(named[e], a.value_dim)], a.value_dim);
    }
  });
  return result;
}

// `forward` is that of the same input.
inline SparseBackward sparse_backward(const SparseAttention& a, const SparseForward& forward) {
  SparseBackward result;
  result.dq.assign(a.q.size(), 0.0);
  result.dk.assign(a.k.size(), 0.0);
  result.dv.assign(a.v.size(), 0.0);
  result.dq_rope.assign(a.q_rope.size(), 0.0);
  result.dk_rope.assign(a.k_rope.size(), 0.0);
  result.dsinks.assign(a.sinks.size(), 0.0);
  const int64_t d = a.head_dim, r = a.rope_dim, dv = a.value_dim;
  each_row(a, [&](int64_t h, const SparseRow& row) {
    const double lse = forward.lse[row.lse()];
    if (lse == -kInfinity) return;
    const double* dout = &a.dout[row.query(dv)];
    const double delta = dot(dout, &forward.out[row.query(dv)], dv);
    for (const int64_t j : row.named()) {
      const double p = std::exp(row.score(j) - lse);
      const double ds = p * (dot(dout, &a.v[row.key(j, dv)], dv) - delta) * a.scale;
      add_scaled(&result.dv[row.key(j, dv)], p, dout, dv);
      add_scaled(&result.dk[row.key(j, d)], ds, &a.q[row.query(d)], d);
      add_scaled(&result.dq[row.query(d)], ds, &a.k[row.key(j, d)], d);
      if (r == 0) continue;
      add_scaled(&result.dk_rope[row.key(j, r)], ds, &a.q_rope[row.query(r)], r);
      add_scaled(&result.dq_rope[row.query(r)], ds, &a.k_rope[row.key(j, r)], r);
    }
    // The sink's value is 0, so its weight changes the row through the denominator alone.
    if (!a.sinks.empty()) {
      result.dsinks[static_cast<size_t>(h)] -= std::exp(row.sink() - lse) * delta;
    }
  });
  return result;
}

}  // namespace ref
