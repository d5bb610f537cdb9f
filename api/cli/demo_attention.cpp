// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// flash_attention in double, from its definition alone: every row weighs the values of the keys
// that it keeps; gradients go back through the weights.
#include <algorithm>
#include <cmath>

#include "api/cli/demo_cases.h"

namespace lathe::cli {
namespace {

double number(const Problem& problem, const char* option) {
  return std::stod(setting(problem, option));
}

// Everything about one call; names and layouts are those of operators.md.
class Attention {
 public:
  Attention(const Problem& problem, const TensorMap& inputs)
      : heads_(problem.extents.at("H")),
        kv_heads_(problem.extents.at("HK")),
        width_(problem.extents.at("D")),
        value_width_(problem.extents.at("DV")),
        packed_(inputs.count("cu_seqlens_q") > 0),
        softcap_(number(problem, "softcap")),
        left_(static_cast<int64_t>(number(problem, "window_left"))),
        right_(static_cast<int64_t>(number(problem, "window_right"))),
        q_(values(inputs, "q")),
        k_(values(inputs, "k")),
        v_(values(inputs, "v")),
        sinks_(values(inputs, "sinks")),
        slopes_(values(inputs, "alibi_slopes")),
        dout_(values(inputs, "dout")) {
    if (number(problem, "causal") != 0) right_ = 0;
    const std::string scale = setting(problem, "softmax_scale");
    scale_ = scale == "D^-0.5" ? 1 / std::sqrt(static_cast<double>(width_)) : std::stod(scale);
    rows_ = static_cast<int64_t>(q_.size()) / (heads_ * width_);
    out_["out"].resize(rows_ * heads_ * value_width_);
    out_["lse"].resize(rows_ * heads_, -INFINITY);
    if (dout_.empty()) return;
    out_["dq"].resize(q_.size());
    out_["dk"].resize(k_.size());
    out_["dv"].resize(v_.size());
    if (!sinks_.empty()) out_["dsinks"].resize(heads_);
  }

  // Sequence n: queries and keys from these tokens on.
  void sequence(int64_t n, int64_t first_q, int64_t queries, int64_t first_k, int64_t keys) {
    for (int64_t h = 0; h < heads_; ++h) {
      for (int64_t i = 0; i < queries; ++i) {
        const int64_t lse = packed_ ? h * rows_ + first_q + i : (n * heads_ + h) * queries + i;
        row(h, (first_q + i) * heads_ + h, lse, i + keys - queries, first_k, keys);
      }
    }
  }

  Expected take() { return std::move(out_); }

 private:
  // `query`: index of a row of q and out; `position`: that of the row among the keys.
  void row(int64_t h, int64_t query, int64_t lse, int64_t position, int64_t first_k, int64_t keys) {
    const int64_t from = left_ < 0 ? 0 : std::max<int64_t>(0, position - left_);
    const int64_t to = right_ < 0 ? keys : std::min(keys, position + right_ + 1);
    const double sink = sinks_.empty() ? -INFINITY : sinks_[h];
    const auto key = [&](int64_t j) {
      return (first_k + j) * kv_heads_ + h / (heads_ / kv_heads_);
    };
    Values capped, score;
    double most = sink;
    for (int64_t j = from; j < to; ++j) {
      const double s = scale_ * dot(q_, query, k_, key(j), width_);
      capped.push_back(softcap_ > 0 ? softcap_ * std::tanh(s / softcap_) : s);
      const double slope = slopes_.empty() ? 0 : slopes_[h];
      score.push_back(capped.back() - slope * std::abs(static_cast<double>(position - j)));
      most = std::max(most, score.back());
    }
    if (most == -INFINITY) return;
    double sum = std::exp(sink - most);
    for (double x : score) sum += std::exp(x - most);
    out_["lse"][lse] = most + std::log(sum);
    for (int64_t j = from; j < to; ++j) {
      add(out_["out"], query, std::exp(score[j - from] - most) / sum, v_, key(j), value_width_);
    }
    if (!dout_.empty()) gradients(h, query, out_["lse"][lse], key, from, capped, score);
  }

  template <typename Key>
  void gradients(int64_t h, int64_t query, double lse, Key key, int64_t from, const Values& capped,
                 const Values& score) {
    const double delta = dot(dout_, query, out_["out"], query, value_width_);
    for (size_t n = 0; n < score.size(); ++n) {
      const int64_t at = key(from + static_cast<int64_t>(n));
      const double weight = std::exp(score[n] - lse);
      double ds = weight * (dot(dout_, query, v_, at, value_width_) - delta) * scale_;
      if (softcap_ > 0) ds *= 1 - std::pow(capped[n] / softcap_, 2);
      add(out_["dv"], at, weight, dout_, query, value_width_);
      add(out_["dk"], at, ds, q_, query, width_);
      add(out_["dq"], query, ds, k_, at, width_);
    }
    if (!sinks_.empty()) out_["dsinks"][h] -= std::exp(sinks_[h] - lse) * delta;
  }

  // Of rows of `count` elements.
  static double dot(const Values& a, int64_t row_a, const Values& b, int64_t row_b, int64_t count) {
    double sum = 0;
    for (int64_t c = 0; c < count; ++c) sum += a[row_a * count + c] * b[row_b * count + c];
    return sum;
  }
  static void add(Values& to, int64_t row_to, double factor, const Values& from, int64_t row_from,
                  int64_t count) {
    for (int64_t c = 0; c < count; ++c) {
      to[row_to * count + c] += factor * from[row_from * count + c];
    }
  }

  int64_t heads_, kv_heads_, width_, value_width_, rows_ = 0;
  bool packed_;
  double scale_ = 1, softcap_;
  int64_t left_, right_;
  Values q_, k_, v_, sinks_, slopes_, dout_;
  Expected out_;
};

}  // namespace

Expected attention_reference(const Problem& problem, const TensorMap& inputs) {
  Attention attention(problem, inputs);
  if (inputs.count("cu_seqlens_q") > 0) {
    const std::vector<int64_t> q = integers(inputs.at("cu_seqlens_q")),
                               k = integers(inputs.at("cu_seqlens_k"));
    for (size_t n = 0; n + 1 < q.size(); ++n) {
      attention.sequence(static_cast<int64_t>(n), q[n], q[n + 1] - q[n], k[n], k[n + 1] - k[n]);
    }
  } else {
    const int64_t queries = problem.extents.at("Sq"), keys = problem.extents.at("Sk");
    for (int64_t b = 0; b < problem.extents.at("B"); ++b) {
      attention.sequence(b, b * queries, queries, b * keys, keys);
    }
  }
  return attention.take();
}

}  // namespace lathe::cli
