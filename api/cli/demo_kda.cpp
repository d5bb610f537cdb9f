// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Kimi Delta Attention in double, token by token, from its definition alone:
//
//   S <- Diag(exp(g)) S;   u = v - S^T k;   S <- S + beta k u^T;   o = scale S^T q
//
// and its gradients, back through the same steps. Gates, norms and sigmoids in the kernel are not
// covered: the demo asks for none.
#include <cmath>

#include "api/cli/demo_builder.h"

namespace lathe::cli {
namespace {

// Names and layouts are those of operators.md.
class Kda {
 public:
  Kda(const Problem& problem, const TensorMap& inputs)
      : heads_(problem.extents.at("H")),
        value_heads_(problem.extents.at("HV")),
        keys_(problem.extents.at("K")),
        values_(problem.extents.at("V")),
        scale_(1 / std::sqrt(static_cast<double>(keys_))),
        q_(values(inputs, "q")),
        k_(values(inputs, "k")),
        v_(values(inputs, "v")),
        g_(values(inputs, "g")),
        beta_(values(inputs, "beta")),
        do_(values(inputs, "do")) {
    out_["o"].resize(v_.size());
    if (do_.empty()) return;
    const std::pair<const char*, const Values*> pairs[] = {
        {"dq", &q_}, {"dk", &k_}, {"dv", &v_}, {"dg", &g_}, {"dbeta", &beta_}};
    for (const auto& [name, of] : pairs) out_[name].resize(of->size());
  }

  // One sequence of tokens from `start` on, in place in its state of all value heads: [HV, K, V].
  // Then the gradient of that state, if there are gradients, from that of the final one.
  void sequence(int64_t start, int64_t length, double* state, double* gradient) {
    for (int64_t h = 0; h < value_heads_; ++h) {
      const int64_t offset = h * keys_ * values_;
      Values s(state + offset, state + offset + keys_ * values_);
      std::vector<Values> decayed, after;  // the state of each token, before and after its step
      for (int64_t t = start; t < start + length; ++t) {
        forward(t, h, &s);
        if (do_.empty()) continue;
        decayed.push_back(decayed_);
        after.push_back(s);
      }
      std::copy(s.begin(), s.end(), state + offset);
      if (do_.empty()) continue;
      Values ds(gradient + offset, gradient + offset + keys_ * values_);
      for (int64_t t = length - 1; t >= 0; --t) backward(start + t, h, decayed[t], after[t], &ds);
      std::copy(ds.begin(), ds.end(), gradient + offset);
    }
  }

  int64_t state_size() const { return value_heads_ * keys_ * values_; }
  Expected& out() { return out_; }

 private:
  int64_t key(int64_t t, int64_t h) const {
    return (t * heads_ + h / (value_heads_ / heads_)) * keys_;
  }
  int64_t value(int64_t t, int64_t h) const { return (t * value_heads_ + h) * values_; }
  int64_t gate(int64_t t, int64_t h) const { return (t * value_heads_ + h) * keys_; }

  // What the token's value differs from what the state says of its key by.
  Values error(int64_t t, int64_t h, const Values& state) const {
    Values u(v_.begin() + value(t, h), v_.begin() + value(t, h) + values_);
    for (int64_t i = 0; i < keys_ * values_; ++i) {
      u[i % values_] -= state[i] * k_[key(t, h) + i / values_];
    }
    return u;
  }

  void forward(int64_t t, int64_t h, Values* s) {
    for (int64_t i = 0; i < keys_ * values_; ++i) (*s)[i] *= std::exp(g_[gate(t, h) + i / values_]);
    decayed_ = *s;
    const Values u = error(t, h, *s);
    const double beta = beta_[t * value_heads_ + h];
    double* o = &out_["o"][value(t, h)];
    for (int64_t i = 0; i < keys_ * values_; ++i) {
      (*s)[i] += beta * k_[key(t, h) + i / values_] * u[i % values_];
      o[i % values_] += scale_ * (*s)[i] * q_[key(t, h) + i / values_];
    }
  }

  // `ds`: of the state after the token, then of the one before it.
  void backward(int64_t t, int64_t h, const Values& decayed, const Values& after, Values* ds) {
    const double* dout = &do_[value(t, h)];
    const double beta = beta_[t * value_heads_ + h];
    const Values u = error(t, h, decayed);
    Values dr(values_);  // of beta u
    for (int64_t i = 0; i < keys_ * values_; ++i) {
      const int64_t c = key(t, h) + i / values_, e = i % values_;
      out_["dq"][c] += scale_ * after[i] * dout[e];
      (*ds)[i] += scale_ * q_[c] * dout[e];
      out_["dk"][c] += (*ds)[i] * beta * u[e];
      dr[e] += (*ds)[i] * k_[c];
    }
    for (int64_t e = 0; e < values_; ++e) {
      out_["dbeta"][t * value_heads_ + h] += dr[e] * u[e];
      out_["dv"][value(t, h) + e] = beta * dr[e];
    }
    for (int64_t i = 0; i < keys_ * values_; ++i) {
      const int64_t c = key(t, h) + i / values_, at = gate(t, h) + i / values_;
      const double du = beta * dr[i % values_];
      (*ds)[i] -= k_[c] * du;
      out_["dk"][c] -= decayed[i] * du;
      out_["dg"][at] += (*ds)[i] * decayed[i];
      (*ds)[i] *= std::exp(g_[at]);
    }
  }

  int64_t heads_, value_heads_, keys_, values_;
  double scale_;
  Values q_, k_, v_, g_, beta_, do_;
  Values decayed_;
  Expected out_;
};

}  // namespace

Expected kda_reference(const Problem& problem, const TensorMap& inputs) {
  Kda kda(problem, inputs);
  const int64_t rows = problem.extents.at("B"), length = problem.extents.at("T");
  std::vector<int64_t> offsets;
  for (int64_t b = 0; b <= rows; ++b) offsets.push_back(b * length);
  if (inputs.count("cu_seqlens") > 0) offsets = integers(inputs.at("cu_seqlens"));
  const int64_t size = kda.state_size(), count = static_cast<int64_t>(offsets.size()) - 1;
  const bool pooled = inputs.count("state_pool") > 0;
  std::vector<int64_t> slots;
  if (pooled) slots = integers(inputs.at("state_indices"));
  for (int64_t n = 0; n < count && !pooled; ++n) slots.push_back(n);
  Values states = values(inputs, pooled ? "state_pool" : "initial_state");
  Values gradients = values(inputs, "dht");
  if (states.empty()) states.resize(count * size);
  if (gradients.empty()) gradients.resize(count * size);
  for (int64_t n = 0; n < count; ++n) {
    kda.sequence(offsets[n], offsets[n + 1] - offsets[n], &states[slots[n] * size],
                 pooled ? nullptr : &gradients[n * size]);
  }
  Expected out = std::move(kda.out());
  out[pooled ? "state_pool" : "final_state"] = std::move(states);
  if (!pooled) out["dinitial_state"] = std::move(gradients);
  return out;
}

namespace {

double small(double noise) { return noise / 8; }  // rows of 64 about as long as 1

Builder rows(const char* title, const char* op, uint64_t seed, int64_t batch, int64_t tokens) {
  const lathe_dtype dtype = LATHE_BF16;
  return Builder(title, op, seed)
      .add("q", dtype, {batch, tokens, 1, 64}, small)
      .add("k", dtype, {batch, tokens, 1, 64}, small)
      .add("v", dtype, {batch, tokens, 2, 64})
      .add("g", LATHE_F32, {batch, tokens, 2, 64}, decay)
      .add("beta", dtype, {batch, tokens, 2}, step);
}

}  // namespace

DemoCase kda_case(int ranks) {
  const char* title = ranks == 0 ? "bf16, 2 value heads a key head, 3 packed sequences, states"
                                 : "bf16, states, sequences over ranks";
  return rows(title, "kda", 7, 1, 150)
      .add("initial_state", LATHE_F32, {3, 2, 64, 64}, small)
      .add("do", LATHE_BF16, {1, 150, 2, 64})
      .add("dht", LATHE_F32, {3, 2, 64, 64}, small)
      .integers("cu_seqlens", {0, 70, 71, 150})
      .make({{"output_final_state", "1"}}, ranks);
}

DemoCase kda_recurrent_case() {
  return rows("bf16, one token for 3 sequences, in place in a pool", "kda_recurrent", 8, 3, 1)
      .add("state_pool", LATHE_F32, {5, 2, 64, 64}, small)
      .integers("state_indices", {4, 0, 2})
      .make({});
}

}  // namespace lathe::cli
