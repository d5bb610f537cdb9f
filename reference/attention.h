// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// flash_attention in double, by plain loops over the definition; nothing is shared with the
// kernels.
//
// Rows lie on one flat axis, sequence n holding [begin_q[n], begin_q[n + 1]) and its keys on
// another. A batch of B rows of S is the case begin = 0, S, 2S, ...; only lse is laid out
// differently. Rows past the last offset are padding. With p = i + Lk - Lq, query head h reading
// key head h / (H / HK), i and j counted in the sequence:
//
//   capped  = cap(scale * q_i . k_j)           cap(x) = softcap * tanh(x / softcap), or x
//   biased  = capped - slope * |p - j|         kept where p - left <= j <= p + right
//   x_ij    = score_mod(biased, n, h, i, j)    and mask_mod(n, h, i, j), where they are given
//   lse_i   = log(sum_j exp(x_ij) + exp(sink)) natural; -inf if there is nothing to add
//   out_i   = sum_j exp(x_ij - lse_i) v_j
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace ref {

using Array = std::vector<double>;
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Attention {
  int64_t heads = 1, kv_heads = 1, head_dim = 8, value_dim = 8;
  std::vector<int64_t> begin_q, begin_k;  // sequences + 1 offsets each
  bool packed = true;                     // lse and dlse are [H, rows]; else [B, H, Sq]
  double scale = 1, softcap = 0;          // softcap 0: none
  bool causal = false;                    // wins over window_right
  int64_t window_left = -1, window_right = -1;
  Array q, k, v;       // [rows, H, D], [keys, HK, D], [keys, HK, DV]
  Array sinks;         // [H]; empty: absent
  Array alibi_slopes;  // [H] or [N, H]; empty: absent
  Array dout, dlse;    // shapes of out and lse; empty: absent
  // Empty: absent. The slope is the derivative of score_mod.
  std::function<double(double, int64_t, int64_t, int64_t, int64_t)> score_mod, score_slope;
  std::function<bool(int64_t, int64_t, int64_t, int64_t)> mask_mod;

  int64_t sequences() const { return static_cast<int64_t>(begin_q.size()) - 1; }
  int64_t rows() const { return static_cast<int64_t>(q.size()) / (heads * head_dim); }
  int64_t queries(int64_t n) const { return begin_q[n + 1] - begin_q[n]; }
  int64_t keys(int64_t n) const { return begin_k[n + 1] - begin_k[n]; }
};

struct AttentionForward {
  Array out, lse;
};
struct AttentionBackward {
  Array dq, dk, dv, dsinks;
};

using Round = double (*)(double);  // to the element type of a plain computation
inline double exactly(double value) { return value; }

// A Score is what options make of scale * q . k, before mods, and its derivative by that product.
struct Score {
  double value, factor;
};

inline double dot(const double* a, const double* b, int64_t count) {
  double sum = 0;
  for (int64_t c = 0; c < count; ++c) sum += a[c] * b[c];
  return sum;
}
inline void add_scaled(double* to, double factor, const double* from, int64_t count) {
  for (int64_t c = 0; c < count; ++c) to[c] += factor * from[c];
}

// One query row of one head: where things lie, and its scores.
class AttentionRow {
 public:
  AttentionRow(const Attention& attention, int64_t sequence, int64_t head, int64_t row)
      : a_(attention), n_(sequence), h_(head), i_(row) {}

  int64_t keys() const { return a_.keys(n_); }
  size_t query() const { return at(a_.begin_q[n_] + i_, a_.heads, h_, a_.head_dim); }
  size_t out() const { return at(a_.begin_q[n_] + i_, a_.heads, h_, a_.value_dim); }
  size_t key(int64_t j) const { return at(a_.begin_k[n_] + j, a_.kv_heads, group(), a_.head_dim); }
  size_t value(int64_t j) const {
    return at(a_.begin_k[n_] + j, a_.kv_heads, group(), a_.value_dim);
  }
  size_t lse() const {
    if (a_.packed) return static_cast<size_t>(h_ * a_.rows() + a_.begin_q[n_] + i_);
    return static_cast<size_t>((n_ * a_.heads + h_) * a_.queries(n_) + i_);
  }

  double position() const { return static_cast<double>(i_ + a_.keys(n_) - a_.queries(n_)); }
  bool kept(int64_t j) const {
    const double ahead = static_cast<double>(j) - position();
    const int64_t right = a_.causal ? 0 : a_.window_right;
    return (a_.window_left < 0 || -ahead <= static_cast<double>(a_.window_left)) &&
           (right < 0 || ahead <= static_cast<double>(right)) &&
           (!a_.mask_mod || a_.mask_mod(n_, h_, i_, j));
  }
  double sink() const { return a_.sinks.empty() ? -kInfinity : a_.sinks[static_cast<size_t>(h_)]; }
  double slope() const {
    if (a_.alibi_slopes.empty()) return 0;
    const bool shared = static_cast<int64_t>(a_.alibi_slopes.size()) == a_.heads;
    return a_.alibi_slopes[static_cast<size_t>((shared ? 0 : n_ * a_.heads) + h_)];
  }
  double bias(int64_t j) const { return -slope() * std::abs(position() - static_cast<double>(j)); }
  // `x` is scale * q . k. A plain computation rounds each step.
  Score options(double x, int64_t j, Round round = exactly) const {
    Score score = {x, 1};
    if (a_.softcap > 0) {
      const double y = round(std::tanh(round(x / a_.softcap)));
      score = {round(y * a_.softcap), 1 - y * y};
    }
    if (!a_.alibi_slopes.empty()) score.value = round(score.value + round(bias(j)));
    return score;
  }
  Score score(int64_t j) const {
    const Score given = options(a_.scale * dot(&a_.q[query()], &a_.k[key(j)], a_.head_dim), j);
    if (!a_.score_mod) return given;
    // Only a backward needs the slope; a forward may come without one.
    const double slope = a_.score_slope ? a_.score_slope(given.value, n_, h_, i_, j)
                                        : std::numeric_limits<double>::quiet_NaN();
    return {a_.score_mod(given.value, n_, h_, i_, j), given.factor * slope};
  }

 private:
  static size_t at(int64_t token, int64_t heads, int64_t head, int64_t width) {
    return static_cast<size_t>((token * heads + head) * width);
  }
  int64_t group() const { return h_ / (a_.heads / a_.kv_heads); }

  const Attention& a_;
  int64_t n_, h_, i_;
};

template <typename Body>
void each_row(const Attention& attention, Body body) {
  for (int64_t n = 0; n < attention.sequences(); ++n) {
    for (int64_t h = 0; h < attention.heads; ++h) {
      for (int64_t i = 0; i < attention.queries(n); ++i) {
        body(h, AttentionRow(attention, n, h, i));
      }
    }
  }
}

inline AttentionForward attention_forward(const Attention& a) {
  AttentionForward result;
  result.out.assign(static_cast<size_t>(a.rows() * a.heads * a.value_dim), 0.0);
  result.lse.assign(static_cast<size_t>(a.rows() * a.heads), -kInfinity);
  each_row(a, [&](int64_t, const AttentionRow& row) {
    Array x(static_cast<size_t>(row.keys()), -kInfinity);
    double largest = row.sink();
    for (int64_t j = 0; j < row.keys(); ++j) {
      if (!row.kept(j)) continue;
      x[j] = row.score(j).value;
      largest = std::isnan(x[j]) ? x[j] : std::max(largest, x[j]);
    }
    if (largest == -kInfinity) return;
    double sum = std::exp(row.sink() - largest);
    for (double value : x) sum += std::exp(value - largest);
    result.lse[row.lse()] = largest + std::log(sum);
    for (int64_t j = 0; j < row.keys(); ++j) {
      if (!row.kept(j)) continue;
      add_scaled(&result.out[row.out()], std::exp(x[j] - largest) / sum, &a.v[row.value(j)],
                 a.value_dim);
    }
  });
  return result;
}

// `forward` is that of the same input. dlse of a row whose lse is -inf is not looked at.
inline AttentionBackward attention_backward(const Attention& a, const AttentionForward& forward) {
  AttentionBackward result;
  result.dq.assign(a.q.size(), 0.0);
  result.dk.assign(a.k.size(), 0.0);
  result.dv.assign(a.v.size(), 0.0);
  result.dsinks.assign(a.sinks.size(), 0.0);
  each_row(a, [&](int64_t h, const AttentionRow& row) {
    const double lse = forward.lse[row.lse()];
    if (lse == -kInfinity) return;
    const double* dout = &a.dout[row.out()];
    const double delta = dot(dout, &forward.out[row.out()], a.value_dim) -
                         (a.dlse.empty() ? 0.0 : a.dlse[row.lse()]);
    for (int64_t j = 0; j < row.keys(); ++j) {
      if (!row.kept(j)) continue;
      const Score score = row.score(j);
      const double p = std::exp(score.value - lse);
      const double dp = dot(dout, &a.v[row.value(j)], a.value_dim);
      const double ds = p * (dp - delta) * a.scale * score.factor;
      add_scaled(&result.dv[row.value(j)], p, dout, a.value_dim);
      add_scaled(&result.dk[row.key(j)], ds, &a.q[row.query()], a.head_dim);
      add_scaled(&result.dq[row.query()], ds, &a.k[row.key(j)], a.head_dim);
    }
    // The sink's value is 0, so its weight changes the row through the denominator alone.
    if (!a.sinks.empty()) {
      result.dsinks[static_cast<size_t>(h)] -= std::exp(row.sink() - lse) * delta;
    }
  });
  return result;
}

}  // namespace ref
