// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// causal_conv1d in double, from its definition alone: y reads a window of the history, gradients go
// back along the same reads.
#include <cmath>

#include "api/cli/demo_cases.h"
#include "api/cli/failure.h"

namespace lathe::cli {

Values values(const TensorMap& inputs, const std::string& name) {
  const auto found = inputs.find(name);
  if (found == inputs.end()) return {};
  Values out(element_count(found->second.spec.shape));
  for (size_t i = 0; i < out.size(); ++i) out[i] = element(found->second, static_cast<int64_t>(i));
  return out;
}

namespace {

double sigmoid(double z) { return 1 / (1 + std::exp(-z)); }
double silu(double z) { return z * sigmoid(z); }
double silu_slope(double z) { return sigmoid(z) * (1 + z * (1 - sigmoid(z))); }

// Everything about one call; names and layouts are those of operators.md.
class Conv {
 public:
  Conv(const Problem& problem, const TensorMap& inputs)
      : channels_(problem.extents.at("D")),
        width_(problem.extents.at("W")),
        silu_(setting(problem, "activation") == "silu"),
        x_(values(inputs, "x")),
        weight_(values(inputs, "weight")),
        bias_(values(inputs, "bias")),
        residual_(values(inputs, "residual")),
        initial_(values(inputs, "initial_state")),
        dy_(values(inputs, "dy")),
        dfinal_(values(inputs, "dfinal_state")) {
    const int64_t states = problem.extents.at("N") * channels_ * width_;
    out_["y"].resize(x_.size());
    out_["final_state"].resize(states);
    if (dy_.empty()) return;
    out_["dx"].resize(x_.size());
    out_["dweight"].resize(weight_.size());
    out_["dbias"].resize(channels_);
    out_["dinitial_state"].resize(states);
    out_["dresidual"] = dy_;
  }

  void sequence(int64_t n, int64_t start, int64_t length) {
    for (int64_t d = 0; d < channels_; ++d) channel(n, start, length, d);
  }

  Expected take() { return std::move(out_); }

 private:
  void channel(int64_t n, int64_t start, int64_t length, int64_t d) {
    // Entry t + W is the input at time t: W slots of state, then the tokens.
    std::vector<double> history(width_ + length), gradient(width_ + length);
    const int64_t state = (n * channels_ + d) * width_;
    const auto token = [&](int64_t t) { return (start + t) * channels_ + d; };
    for (int64_t s = 0; s < width_; ++s) history[s] = initial_.empty() ? 0 : initial_[state + s];
    for (int64_t t = 0; t < length; ++t) history[width_ + t] = x_[token(t)];
    for (int64_t t = 0; t < length; ++t) {
      double z = bias_.empty() ? 0 : bias_[d];
      for (int64_t i = 0; i < width_; ++i) z += weight_[d * width_ + i] * history[t + 1 + i];
      const double residual = residual_.empty() ? 0 : residual_[token(t)];
      out_["y"][token(t)] = (silu_ ? silu(z) : z) + residual;
      if (dy_.empty()) continue;
      const double dz = dy_[token(t)] * (silu_ ? silu_slope(z) : 1);
      out_["dbias"][d] += dz;
      for (int64_t i = 0; i < width_; ++i) {
        out_["dweight"][d * width_ + i] += dz * history[t + 1 + i];
        gradient[t + 1 + i] += dz * weight_[d * width_ + i];
      }
    }
    for (int64_t s = 0; s < width_; ++s) {
      out_["final_state"][state + s] = history[length + s];
      if (!dfinal_.empty()) gradient[length + s] += dfinal_[state + s];
    }
    if (dy_.empty()) return;
    for (int64_t s = 0; s < width_; ++s) out_["dinitial_state"][state + s] = gradient[s];
    for (int64_t t = 0; t < length; ++t) out_["dx"][token(t)] = gradient[width_ + t];
  }

  int64_t channels_, width_;
  bool silu_;
  std::vector<double> x_, weight_, bias_, residual_, initial_, dy_, dfinal_;
  Expected out_;
};

}  // namespace

Expected conv_reference(const Problem& problem, const TensorMap& inputs) {
  Conv conv(problem, inputs);
  const int64_t length = problem.extents.at("T");
  const auto packed = inputs.find("cu_seqlens");
  if (packed != inputs.end()) {
    const std::vector<int64_t> offsets = integers(packed->second);
    for (size_t n = 0; n + 1 < offsets.size(); ++n) {
      conv.sequence(static_cast<int64_t>(n), offsets[n], offsets[n + 1] - offsets[n]);
    }
  } else {
    for (int64_t b = 0; b < problem.extents.at("B"); ++b) conv.sequence(b, b * length, length);
  }
  return conv.take();
}

// One token of a sequence whose history is the state.
Expected conv_update_reference(const Problem& problem, const TensorMap& inputs) {
  TensorMap one = inputs;
  one["initial_state"] = inputs.at("state");
  Problem token = problem;
  token.extents["N"] = problem.extents.at("B");
  Conv conv(token, one);
  for (int64_t b = 0; b < problem.extents.at("B"); ++b) conv.sequence(b, b, 1);
  Expected out = conv.take();
  return {{"y", out.at("y")}, {"state", out.at("final_state")}};
}

Expected reference(const Problem& problem, const TensorMap& inputs) {
  const std::string op = problem.op->name;
  if (op == "causal_conv1d") return conv_reference(problem, inputs);
  if (op == "causal_conv1d_update") return conv_update_reference(problem, inputs);
  if (op == "flash_attention") return attention_reference(problem, inputs);
  if (op == "flash_attention_decode") return decode_reference(problem, inputs);
  if (op == "sparse_flash_attention") return sparse_reference(problem, inputs);
  if (op == "kda" || op == "kda_recurrent") return kda_reference(problem, inputs);
  fail("the demo has no reference for " + op);
}

}  // namespace lathe::cli
