// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A step of ring attention in double, by plain loops: rows and keys are parts of sequences, and a
// function of the test's own says who sees whom, and how far apart the two are.
#pragma once

#include <functional>
#include <optional>

#include "reference/attention.h"

namespace ref {

// Position of key j minus that of row i, where i keeps j.
using Ahead = std::function<std::optional<int64_t>(int64_t i, int64_t j)>;

struct AttentionBlock {
  int64_t heads = 1, kv_heads = 1, head_dim = 8, value_dim = 8, rows = 0, keys = 0;
  double scale = 1, softcap = 0;
  Array q, k, v;  // [rows, H, D], [keys, HK, D], [keys, HK, DV]
  Array slopes;   // [H]; empty: absent
  Ahead ahead;
  // score_mod returns the final score of row i, key j and head h, with its derivative; mask_mod is
  // true if head h keeps the pair. Empty: scores stay, and all pairs are kept.
  std::function<std::pair<double, double>(double score, int64_t i, int64_t j, int64_t h)> score_mod;
  std::function<bool(int64_t i, int64_t j, int64_t h)> mask_mod;

  std::optional<int64_t> distance(int64_t i, int64_t j, int64_t h) const {
    const std::optional<int64_t> found = ahead(i, j);
    return found && mask_mod && !mask_mod(i, j, h) ? std::nullopt : found;
  }
  std::pair<double, double> modified(double score, int64_t i, int64_t j, int64_t h) const {
    return score_mod ? score_mod(score, i, j, h) : std::pair{score, 1.0};
  }
  size_t query(int64_t i, int64_t h) const { return static_cast<size_t>(i * heads + h); }
  size_t key(int64_t j, int64_t h) const {
    return static_cast<size_t>(j * kv_heads + h / (heads / kv_heads));
  }
  double capped(int64_t i, int64_t j, int64_t h) const {
    const size_t d = static_cast<size_t>(head_dim);
    const double x = scale * dot(&q[query(i, h) * d], &k[key(j, h) * d], head_dim);
    return softcap > 0 ? softcap * std::tanh(x / softcap) : x;
  }
  double bias(int64_t h, int64_t distance) const {
    if (slopes.empty()) return 0;
    return -slopes[static_cast<size_t>(h)] * std::abs(static_cast<double>(distance));
  }
};

// (out [rows, H, DV], lse [H, rows]) goes on over the block's keys. Rows that see none keep what
// they had.
inline void attention_block(const AttentionBlock& a, AttentionForward* state) {
  const auto width = static_cast<size_t>(a.value_dim);
  for (int64_t h = 0; h < a.heads; ++h) {
    for (int64_t i = 0; i < a.rows; ++i) {
      double& lse = state->lse[static_cast<size_t>(h * a.rows + i)];
      double* out = &state->out[a.query(i, h) * width];
      std::vector<std::pair<int64_t, double>> kept;
      double largest = lse;
      for (int64_t j = 0; j < a.keys; ++j) {
        const std::optional<int64_t> distance = a.distance(i, j, h);
        if (!distance) continue;
        kept.emplace_back(j, a.modified(a.capped(i, j, h) + a.bias(h, *distance), i, j, h).first);
        largest = std::max(largest, kept.back().second);
      }
      if (kept.empty()) continue;
      const double before = std::exp(lse - largest);
      double sum = before;
      for (const auto& [j, x] : kept) sum += std::exp(x - largest);
      for (int64_t c = 0; c < a.value_dim; ++c) {
        out[c] = before == 0 ? 0 : out[c] * before / sum;
      }
      for (const auto& [j, x] : kept) {
        add_scaled(out, std::exp(x - largest) / sum, &a.v[a.key(j, h) * width], a.value_dim);
      }
      lse = largest + std::log(sum);
    }
  }
}

struct AttentionBlockGradients {
  Array dq, dk, dv;
};
// Adds what the block's keys contribute to the gradients, given the final lse and E = sum(dout *
// out) - dlse, both [H, rows]. Rows whose lse is -inf add nothing. `round` rounds weights and the
// scores' gradients before they are multiplied, for what a computation in 16 bits may lose.
inline void attention_block_backward(
    const AttentionBlock& a, const Array& dout, const Array& lse, const Array& e,
    AttentionBlockGradients* sums,
    const std::function<double(double)>& round = [](double x) { return x; }) {
  const auto width = static_cast<size_t>(a.head_dim), values = static_cast<size_t>(a.value_dim);
  for (int64_t h = 0; h < a.heads; ++h) {
    for (int64_t i = 0; i < a.rows; ++i) {
      const auto row = static_cast<size_t>(h * a.rows + i);
      if (lse[row] == -kInfinity) continue;
      const size_t query = a.query(i, h);
      for (int64_t j = 0; j < a.keys; ++j) {
        const std::optional<int64_t> distance = a.distance(i, j, h);
        if (!distance) continue;
        const size_t key = a.key(j, h);
        const double capped = a.capped(i, j, h);
        const auto [score, slope] = a.modified(capped + a.bias(h, *distance), i, j, h);
        const double p = std::exp(score - lse[row]);
        const double dp = dot(&dout[query * values], &a.v[key * values], a.value_dim);
        double ds = p * (dp - e[row]) * slope;
        if (a.softcap > 0) ds *= 1 - (capped / a.softcap) * (capped / a.softcap);
        ds = round(ds) * a.scale;
        add_scaled(&sums->dv[key * values], round(p), &dout[query * values], a.value_dim);
        add_scaled(&sums->dk[key * width], ds, &a.q[query * width], a.head_dim);
        add_scaled(&sums->dq[query * width], ds, &a.k[key * width], a.head_dim);
      }
    }
  }
}

}  // namespace ref
