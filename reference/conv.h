// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// causal_conv1d in double, by plain loops over the definition; nothing is shared with the kernels.
//
// Tokens lie on one flat axis of `rows`; sequence n holds [begin[n], begin[n + 1]). A batch of B
// rows of T tokens is the case begin = 0, T, 2T, ... . States are [N, D, W], oldest slot first.
//
//   hist[t] = x[t] for t >= 0, initial_state[W + t] for t < 0 (0 without one)
//   z[t]    = bias + sum_i weight[i] * hist[t - (W - 1) + i]
//   y[t]    = act(z[t]) + residual[t]
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ref {

using Array = std::vector<double>;

struct Conv {
  int64_t channels = 0, width = 0;
  std::vector<int64_t> begin;  // sequences + 1 offsets on the flat axis
  bool silu = false;
  Array x, weight;                      // [rows, D], [D, W]
  Array bias, residual, initial_state;  // empty: absent
  Array dy, dfinal_state;               // empty: absent

  int64_t rows() const { return begin.back(); }
  int64_t sequences() const { return static_cast<int64_t>(begin.size()) - 1; }
};

struct ConvForward {
  Array y, final_state;
};
struct ConvBackward {
  Array dx, dweight, dbias, dresidual, dinitial_state;
};

inline double sigmoid(double z) { return 1.0 / (1.0 + std::exp(-z)); }

// One channel of one sequence.
class ConvLine {
 public:
  ConvLine(const Conv& conv, int64_t sequence, int64_t channel)
      : conv_(conv), n_(sequence), d_(channel) {}

  int64_t tokens() const { return conv_.begin[n_ + 1] - conv_.begin[n_]; }
  size_t at(int64_t t) const {  // of [rows, D]
    return static_cast<size_t>((conv_.begin[n_] + t) * conv_.channels + d_);
  }
  size_t state(int64_t slot) const {
    return static_cast<size_t>((n_ * conv_.channels + d_) * conv_.width + slot);
  }
  size_t tap(int64_t i) const { return static_cast<size_t>(d_ * conv_.width + i); }

  double history(int64_t t) const {
    if (t >= 0) return conv_.x[at(t)];
    return conv_.initial_state.empty() ? 0.0 : conv_.initial_state[state(conv_.width + t)];
  }
  double z(int64_t t) const {
    double sum = conv_.bias.empty() ? 0.0 : conv_.bias[static_cast<size_t>(d_)];
    for (int64_t i = 0; i < conv_.width; ++i) {
      sum += conv_.weight[tap(i)] * history(t - (conv_.width - 1) + i);
    }
    return sum;
  }
  double dz(int64_t t) const {
    const double upstream = conv_.dy[at(t)];
    if (!conv_.silu) return upstream;
    const double value = z(t), s = sigmoid(value);
    return upstream * s * (1.0 + value * (1.0 - s));
  }

 private:
  const Conv& conv_;
  int64_t n_, d_;
};

inline ConvForward conv_forward(const Conv& conv) {
  const int64_t w = conv.width;
  ConvForward out;
  out.y.assign(conv.x.size(), 0.0);
  out.final_state.assign(static_cast<size_t>(conv.sequences() * conv.channels * w), 0.0);
  for (int64_t n = 0; n < conv.sequences(); ++n) {
    for (int64_t d = 0; d < conv.channels; ++d) {
      const ConvLine line(conv, n, d);
      for (int64_t t = 0; t < line.tokens(); ++t) {
        const double z = line.z(t);
        out.y[line.at(t)] = (conv.silu ? z * sigmoid(z) : z) +
                            (conv.residual.empty() ? 0.0 : conv.residual[line.at(t)]);
      }
      for (int64_t s = 0; s < w; ++s) {
        out.final_state[line.state(s)] = line.history(line.tokens() - w + s);
      }
    }
  }
  return out;
}

inline ConvBackward conv_backward(const Conv& conv) {
  const int64_t w = conv.width;
  ConvBackward out;
  out.dx.assign(conv.x.size(), 0.0);
  out.dweight.assign(conv.weight.size(), 0.0);
  out.dbias.assign(static_cast<size_t>(conv.channels), 0.0);
  out.dresidual = conv.dy;
  out.dinitial_state.assign(static_cast<size_t>(conv.sequences() * conv.channels * w), 0.0);
  for (int64_t n = 0; n < conv.sequences(); ++n) {
    for (int64_t d = 0; d < conv.channels; ++d) {
      const ConvLine line(conv, n, d);
      const int64_t tokens = line.tokens();
      // The gradient of history position t goes to the token or to the slot it was read from.
      const auto give = [&](int64_t t, double gradient) {
        (t >= 0 ? out.dx[line.at(t)] : out.dinitial_state[line.state(w + t)]) += gradient;
      };
      for (int64_t t = 0; t < tokens; ++t) {
        const double dz = line.dz(t);
        out.dbias[static_cast<size_t>(d)] += dz;
        for (int64_t i = 0; i < w; ++i) {
          out.dweight[line.tap(i)] += dz * line.history(t - (w - 1) + i);
          give(t - (w - 1) + i, conv.weight[line.tap(i)] * dz);
        }
      }
      for (int64_t s = 0; s < w && !conv.dfinal_state.empty(); ++s) {
        give(tokens - w + s, conv.dfinal_state[line.state(s)]);
      }
    }
  }
  return out;
}

struct ConvStep {
  Array y, state;  // [B, D], [B, D, W]
};

// causal_conv1d_update: one token per row, x [B, D]; `state` is rolled by one, then read.
inline ConvStep conv_update(const Conv& conv, const Array& state) {
  const int64_t w = conv.width, batch = static_cast<int64_t>(conv.x.size()) / conv.channels;
  ConvStep out{Array(conv.x.size(), 0.0), state};
  for (int64_t row = 0; row < batch * conv.channels; ++row) {
    const int64_t d = row % conv.channels;
    double* slots = &out.state[static_cast<size_t>(row * w)];
    for (int64_t s = 0; s + 1 < w; ++s) slots[s] = slots[s + 1];
    slots[w - 1] = conv.x[static_cast<size_t>(row)];
    double z = conv.bias.empty() ? 0.0 : conv.bias[static_cast<size_t>(d)];
    for (int64_t i = 0; i < w; ++i) z += conv.weight[static_cast<size_t>(d * w + i)] * slots[i];
    out.y[static_cast<size_t>(row)] =
        (conv.silu ? z * sigmoid(z) : z) +
        (conv.residual.empty() ? 0.0 : conv.residual[static_cast<size_t>(row)]);
  }
  return out;
}

}  // namespace ref
