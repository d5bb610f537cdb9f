// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Computes flash_attention as a textbook does in the element type, each step rounded to it and each
// sum in float32, and the bound that follows from its error: a kernel may be off by twice as much.
// Inputs are already of the element type.
#pragma once

#include <algorithm>
#include <cmath>

#include "reference/attention.h"

namespace ref {

namespace detail {

inline double to_float(double value) { return static_cast<float>(value); }

// Returns a sum of products in float32, one after another.
inline double dot_float(const double* a, const double* b, int64_t count) {
  float sum = 0;
  for (int64_t c = 0; c < count; ++c) sum += static_cast<float>(a[c]) * static_cast<float>(b[c]);
  return sum;
}
inline void add_float(double* to, double factor, const double* from, int64_t count) {
  for (int64_t c = 0; c < count; ++c) {
    to[c] = static_cast<float>(to[c]) + static_cast<float>(factor) * static_cast<float>(from[c]);
  }
}
inline void round_all(Array* values, Round round) {
  for (double& value : *values) value = round(value);
}

// The scores of a row in the element type, and its weights: softmax in float32, then rounded.
struct PlainRow {
  Array factor, score, weight;  // factor: as in Score
  double lse = -kInfinity;
};

inline PlainRow plain_row(const Attention& a, const Array& scaled_k, const AttentionRow& row,
                          Round round) {
  const size_t keys = static_cast<size_t>(row.keys());
  PlainRow plain{Array(keys, 0.0), Array(keys, -kInfinity), Array(keys, 0.0), -kInfinity};
  double largest = to_float(row.sink());
  for (int64_t j = 0; j < row.keys(); ++j) {
    if (!row.kept(j)) continue;
    const double s = round(dot_float(&a.q[row.query()], &scaled_k[row.key(j)], a.head_dim));
    const Score score = row.options(s, j, round);
    plain.score[j] = score.value, plain.factor[j] = score.factor;
    largest = std::max(largest, plain.score[j]);
  }
  if (largest == -kInfinity) return plain;
  float sum = std::exp(static_cast<float>(row.sink() - largest));
  for (double score : plain.score) sum += std::exp(static_cast<float>(score - largest));
  plain.lse = largest + std::log(sum);
  for (size_t j = 0; j < keys; ++j) {
    plain.weight[j] = round(std::exp(static_cast<float>(plain.score[j] - largest)) / sum);
  }
  return plain;
}

inline Array scaled_keys(const Attention& a, Round round) {
  Array scaled = a.k;
  for (double& value : scaled) value = round(value * a.scale);
  return scaled;
}

// Returns the gradient of one score, back through the options.
inline double plain_dscore(const Attention& a, const PlainRow& plain, size_t j, double ds,
                           Round round) {
  if (a.softcap <= 0) return ds * plain.factor[j];
  return round(round(round(ds * a.softcap) * plain.factor[j]) / a.softcap);
}

}  // namespace detail

inline AttentionForward plain_forward(const Attention& a, Round round) {
  AttentionForward result;
  result.out.assign(static_cast<size_t>(a.rows() * a.heads * a.value_dim), 0.0);
  result.lse.assign(static_cast<size_t>(a.rows() * a.heads), -kInfinity);
  const Array scaled_k = detail::scaled_keys(a, round);
  each_row(a, [&](int64_t, const AttentionRow& row) {
    const detail::PlainRow plain = detail::plain_row(a, scaled_k, row, round);
    result.lse[row.lse()] = plain.lse;
    for (int64_t j = 0; j < row.keys(); ++j) {
      if (!row.kept(j)) continue;
      detail::add_float(&result.out[row.out()], plain.weight[static_cast<size_t>(j)],
                        &a.v[row.value(j)], a.value_dim);
    }
  });
  detail::round_all(&result.out, round);
  return result;
}

inline AttentionBackward plain_backward(const Attention& a, Round round) {
  AttentionBackward result;
  result.dq.assign(a.q.size(), 0.0);
  result.dk.assign(a.k.size(), 0.0);
  result.dv.assign(a.v.size(), 0.0);
  result.dsinks.assign(a.sinks.size(), 0.0);
  const Array scaled_k = detail::scaled_keys(a, round);
  // Every query head has its own gradients of keys and values, rounded before the group adds them.
  Array dk(a.k.size()), dv(a.v.size());
  const auto join = [round](Array* group, Array* own, double factor) {
    for (size_t i = 0; i < own->size(); ++i) {
      const double value = round((*own)[i]);
      (*group)[i] = detail::to_float((*group)[i] + (factor == 1 ? value : round(value * factor)));
    }
    std::fill(own->begin(), own->end(), 0.0);
  };
  for (int64_t h = 0; h < a.heads; ++h) {
    for (int64_t n = 0; n < a.sequences(); ++n) {
      for (int64_t i = 0; i < a.queries(n); ++i) {
        const AttentionRow row(a, n, h, i);
        const detail::PlainRow plain = detail::plain_row(a, scaled_k, row, round);
        if (plain.lse == -kInfinity) continue;
        const double* dout = &a.dout[row.out()];
        Array dp(plain.weight.size(), 0.0);
        float delta = a.dlse.empty() ? 0.0f : -static_cast<float>(a.dlse[row.lse()]);
        for (int64_t j = 0; j < row.keys(); ++j) {
          if (!row.kept(j)) continue;
          dp[j] = round(detail::dot_float(dout, &a.v[row.value(j)], a.value_dim));
          delta += static_cast<float>(plain.weight[j] * dp[j]);
        }
        for (int64_t j = 0; j < row.keys(); ++j) {
          if (!row.kept(j)) continue;
          const double p = plain.weight[j];
          const double ds = detail::plain_dscore(
              a, plain, j, round(detail::to_float(p * (dp[j] - delta))), round);
          detail::add_float(&dv[row.value(j)], p, dout, a.value_dim);
          detail::add_float(&dk[row.key(j)], ds, &a.q[row.query()], a.head_dim);
          detail::add_float(&result.dq[row.query()], ds, &scaled_k[row.key(j)], a.head_dim);
        }
        if (!a.sinks.empty()) {
          const float weight = std::exp(static_cast<float>(row.sink() - plain.lse));
          result.dsinks[h] = detail::to_float(result.dsinks[h] - weight * delta);
        }
      }
    }
    join(&result.dk, &dk, a.scale);
    join(&result.dv, &dv, 1);
  }
  for (Array* gradient : {&result.dq, &result.dk, &result.dv}) detail::round_all(gradient, round);
  return result;
}

// Returns the largest finite difference.
inline double largest_error(const Array& actual, const Array& expected) {
  double largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double error = std::abs(actual[i] - expected[i]);
    if (std::isfinite(expected[i]) && std::isfinite(actual[i])) largest = std::max(largest, error);
  }
  return largest;
}

// Returns the bound of compare::Rule::kMax2x. `ratio` is 2; 3 with softcap, or with sinks on packed
// input. The second term is what one addition and subtraction of the type loses; gradients with
// softcap get 3e-4 more as `extra`.
inline double max2x_bound(const Array& expected, const Array& plain, double ratio, Round round,
                          double extra = 0) {
  double lost = 0;
  for (double value : expected) {
    const double near = round(value), back = round(round(near + 0.3) - 0.3);
    if (std::isfinite(back)) lost = std::max(lost, std::abs(back - near));
  }
  return ratio * largest_error(plain, expected) + 2 * lost + extra;
}

// 1 - 2 <a, b> / (<a, a> + <b, b>), 0 where both are 0: sees a wrong block that a bound forgives.
inline double cosine_difference(const Array& a, const Array& b) {
  double product = 0, squares = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    product += a[i] * b[i];
    squares += a[i] * a[i] + b[i] * b[i];
  }
  return squares == 0 ? 0 : 1 - 2 * product / squares;
}

}  // namespace ref
