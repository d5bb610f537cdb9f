// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The demo's problems, small enough for the simulator, and the comparison.
#include <algorithm>
#include <cmath>

#include "api/cli/demo/demo_builder.h"

namespace lathe::cli {
namespace {

DemoCase plain(const std::string& title, int64_t tokens, bool known) {
  const lathe_dtype dtype = LATHE_BF16;
  return Builder(1)
      .add("x", dtype, {2, tokens, 128})
      .add("weight", dtype, {128, 4})
      .add("bias", dtype, {128})
      .add("dy", dtype, {2, tokens, 128})
      .make("causal_conv1d", title, {{"activation", "silu"}}, 0, known);
}

DemoCase stateful() {
  const lathe_dtype dtype = LATHE_F32;
  return Builder(2)
      .add("x", dtype, {2, 50, 51})
      .add("weight", dtype, {51, 3})
      .add("initial_state", dtype, {2, 51, 3})
      .add("dy", dtype, {2, 50, 51})
      .add("dfinal_state", dtype, {2, 51, 3})
      .make("causal_conv1d", "f32, states and their gradients, odd D",
            {{"output_final_state", "1"}});
}

// Sequences of 40, 0, 1, 2 and 60 tokens.
DemoCase packed(const std::string& title, int ranks) {
  const lathe_dtype dtype = LATHE_F16;
  return Builder(3)
      .add("x", dtype, {1, 103, 64})
      .add("weight", dtype, {64, 4})
      .add("bias", dtype, {64})
      .add("residual", dtype, {1, 103, 64})
      .add("initial_state", dtype, {5, 64, 4})
      .add("dy", dtype, {1, 103, 64})
      .add("dfinal_state", dtype, {5, 64, 4})
      .integers("cu_seqlens", {0, 40, 40, 41, 43, 103})
      .make("causal_conv1d", title, {{"activation", "silu"}, {"output_final_state", "1"}}, ranks);
}

DemoCase update() {
  const lathe_dtype dtype = LATHE_BF16;
  return Builder(4)
      .add("x", dtype, {16, 256})
      .add("state", dtype, {16, 256, 4})
      .add("weight", dtype, {256, 4})
      .add("bias", dtype, {256})
      .make("causal_conv1d_update", "bf16, one token for 16 sequences", {{"activation", "silu"}});
}

DemoCase attention(const std::string& title, int64_t tokens, bool known) {
  const lathe_dtype dtype = LATHE_BF16;
  return Builder(5)
      .add("q", dtype, {1, tokens, 4, 64})
      .add("k", dtype, {1, tokens, 2, 64})
      .add("v", dtype, {1, tokens, 2, 64})
      .add("sinks", LATHE_F32, {4})
      .add("dout", dtype, {1, tokens, 4, 64})
      .make("flash_attention", title, {{"causal", "1"}}, 0, known);
}

// Sequences of 30 queries and 50 keys, 0 and 4, 70 and 70.
DemoCase packed_attention() {
  const lathe_dtype dtype = LATHE_F16;
  return Builder(6)
      .add("q", dtype, {100, 2, 40})
      .add("k", dtype, {124, 2, 40})
      .add("v", dtype, {124, 2, 64})
      .add("alibi_slopes", LATHE_F32, {2})
      .add("dout", dtype, {100, 2, 64})
      .integers("cu_seqlens_q", {0, 30, 30, 100})
      .integers("cu_seqlens_k", {0, 50, 54, 124})
      .make("flash_attention", "f16, 3 packed sequences, window, softcap, ALiBi",
            {{"window_left", "24"}, {"window_right", "5"}, {"softcap", "8"}});
}

// Lists of 24 entries of which some name a key twice, none, or one behind the row.
DemoCase sparse() {
  const int64_t rows = 40, keys = 60, listed = 24;
  std::vector<int64_t> indices;
  for (int64_t at = 0; at < rows * listed; ++at) {
    indices.push_back(at % 7 == 6 ? -1 : at * 37 % 11 * at % keys);
  }
  const lathe_dtype dtype = LATHE_BF16;
  return Builder(9)
      .add("q", dtype, {1, rows, 4, 64})
      .add("k", dtype, {1, keys, 1, 64})
      .add("v", dtype, {1, keys, 1, 64})
      .add("dout", dtype, {1, rows, 4, 64})
      .integers("indices", indices, {1, rows, 1, listed})
      .make("sparse_flash_attention", "bf16, causal, lists of 24 keys",
            {{"scale", "0.125"}, {"sparse_mode", "3"}});
}

DemoCase decode() {
  const lathe_dtype dtype = LATHE_BF16;
  return Builder(10)
      .add("q", dtype, {2, 2, 4, 64})
      .add("k_cache", dtype, {7, 16, 2, 64})
      .add("v_cache", dtype, {7, 16, 2, 64})
      .integers("block_table", {5, 1, 3, 0, 2, 6}, {2, 3})
      .integers("cache_seqlens", {41, 20})
      .make("flash_attention_decode", "bf16, causal, 2 queries over pages of 16 keys",
            {{"causal", "1"}});
}

double small(double noise) { return noise / 8; }  // rows of 64 about as long as 1

Builder rows(uint64_t seed, int64_t batch, int64_t tokens) {
  const lathe_dtype dtype = LATHE_BF16;
  return Builder(seed)
      .add("q", dtype, {batch, tokens, 1, 64}, small)
      .add("k", dtype, {batch, tokens, 1, 64}, small)
      .add("v", dtype, {batch, tokens, 2, 64})
      .add("g", LATHE_F32, {batch, tokens, 2, 64}, decay)
      .add("beta", dtype, {batch, tokens, 2}, step);
}

DemoCase kda() {
  const char* title = "bf16, 2 value heads a key head, 3 packed sequences, states";
  return rows(7, 1, 150)
      .add("initial_state", LATHE_F32, {3, 2, 64, 64}, small)
      .add("do", LATHE_BF16, {1, 150, 2, 64})
      .add("dht", LATHE_F32, {3, 2, 64, 64}, small)
      .integers("cu_seqlens", {0, 70, 71, 150})
      .make("kda", title, {{"output_final_state", "1"}});
}

DemoCase kda_recurrent() {
  return rows(8, 3, 1)
      .add("state_pool", LATHE_F32, {5, 2, 64, 64}, small)
      .integers("state_indices", {4, 0, 2})
      .make("kda_recurrent", "bf16, one token for 3 sequences, in place in a pool", {});
}

double bound_of(const Problem& problem, const std::string& output) {
  const bool copied = problem.inputs.count("x") > 0;  // a convolution keeps what it was given
  if (output == "state" || output == "dresidual" || (copied && output == "final_state")) return 0;
  if (output == "lse") return 1e-5;
  const auto& inputs = problem.inputs;
  switch (inputs.at(inputs.count("x") > 0 ? "x" : "q").dtype) {
    case LATHE_F16:
      return 3e-3;
    case LATHE_BF16:
      return 1e-2;
    default:
      return 1e-3;
  }
}

double relative_rms(const HostTensor& actual, const Values& expected) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double difference = element(actual, static_cast<int64_t>(i)) - expected[i];
    error += difference * difference;
    norm += expected[i] * expected[i];
  }
  if (error == 0) return 0;
  return norm == 0 ? INFINITY : std::sqrt(error / norm);
}

}  // namespace

std::vector<DemoCase> demo_cases() {
  return {
      plain("bf16, silu, bias", 96, false),
      plain("the same with 3 times the tokens", 288, true),
      stateful(),
      packed("f16, 5 packed sequences, residual, states", 0),
      packed("the same split over 3 ranks", 3),
      update(),
      attention("bf16, causal, 2 query heads a key head, sinks", 100, false),
      attention("the same with 3 times the tokens", 300, true),
      packed_attention(),
      decode(),
      sparse(),
      kda(),
      kda_recurrent(),
  };
}

Verdict verdict_of(const std::string& output, const HostTensor& actual, const Values& expected,
                   double bound) {
  const bool same_size = static_cast<int64_t>(expected.size()) == element_count(actual.spec.shape);
  const double error = same_size ? relative_rms(actual, expected) : INFINITY;
  // Not "!(error > bound)": a NaN must not pass.
  return {output, error, bound, error <= bound};
}

std::vector<Verdict> compare(const Problem& problem, const TensorMap& outputs,
                             const Expected& expected) {
  std::vector<Verdict> out;
  for (const auto& [name, tensor] : outputs) {
    const auto found = expected.find(name);
    out.push_back(verdict_of(name, tensor, found == expected.end() ? Values() : found->second,
                             bound_of(problem, name)));
  }
  return out;
}

const Verdict& worst_of(const std::vector<Verdict>& verdicts) {
  const auto share = [](const Verdict& verdict) {
    if (!verdict.good) return HUGE_VAL;
    return verdict.bound == 0 ? 0 : verdict.error / verdict.bound;
  };
  return *std::max_element(verdicts.begin(), verdicts.end(),
                           [&](const Verdict& a, const Verdict& b) { return share(a) < share(b); });
}

}  // namespace lathe::cli
