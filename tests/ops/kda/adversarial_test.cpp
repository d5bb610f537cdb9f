// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover kda where numbers are at their worst: keys that are all one, steps of 1 and 2,
// gates that keep everything or nothing, rows of zeros, gates as strong and as long as they come,
// and many heads. Against the recurrence in double, forward and backward, under every check.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tests/numbers.h"
#include "tests/ops/kda/case.h"

namespace {

using namespace apitest;
using ref::Array;

// 150 tokens of two value heads: chunks, blocks and rounds that end anywhere.
KdaCase plain() {
  return {.beta_dtype = LATHE_F32,
          .group = 2,
          .key_dim = 60,
          .value_dim = 32,
          .tokens = 150,
          .backward = true,
          .dht = true};
}

KdaCase normalized() {
  KdaCase kda = plain();
  kda.l2norm = true;
  return kda;
}

void fill(Array* values, lathe_dtype dtype, double value) {
  std::fill(values->begin(), values->end(), numbers::rounded(dtype, value));
}

// Every key is the first one, give or take a share of what it was.
void make_collinear(const KdaCase& kda, Array* keys, double share) {
  const size_t width = static_cast<size_t>(kda.key_dim);
  for (size_t i = width; i < keys->size(); ++i) {
    (*keys)[i] = numbers::rounded(kda.element, (*keys)[i % width] + share * (*keys)[i]);
  }
}

Outputs check_case(const KdaCase& kda, const KdaInputs& inputs, double slack = 1) {
  INFO(kda.text());
  const Outputs actual = run_kda(kda, inputs);
  check_kda(kda, inputs, actual, slack);
  return actual;
}

bool all_finite(const Outputs& values) {
  for (const auto& [name, each] : values) {
    if (!std::all_of(each.begin(), each.end(), [](double x) { return std::isfinite(x); })) {
      return false;
    }
  }
  return true;
}

// A power series for the inverse fails here: its terms grow to 1e28 at beta 2. In 16 bits each step
// of 2 turns the state over and adds a rounding of its own size that nothing damps, so that errors
// grow with the root of their number; a step of 1 cancels all that the one before it wrote.
TEST_CASE("kda: one key for ever, without decay and with hardly any") {
  for (const lathe_dtype dtype : {LATHE_BF16, LATHE_F32}) {
    for (const double beta : {1.0, 2.0, 0.9997}) {
      for (const auto& [g, share] : {std::pair(0.0, 0.0), std::pair(-3e-5, 0.01)}) {
        INFO("beta " << beta << " g " << g << " share " << share);
        KdaCase kda = normalized();
        kda.element = dtype;
        KdaInputs inputs = make_kda_inputs(kda);
        make_collinear(kda, &inputs.kda.k, share);
        fill(&inputs.kda.g, kda.gate_dtype, g);
        fill(&inputs.kda.beta, kda.beta_dtype, beta);
        check_case(kda, inputs, beta == 2 ? 6 : 1.5);
      }
    }
  }
}

TEST_CASE("kda: one key over thousands of tokens, by the gate and the logit of a trained model") {
  KdaCase kda;
  kda.key_dim = 64, kda.value_dim = 16;
  kda.tokens = 4100;
  kda.l2norm = kda.sigmoid = true;
  kda.gate = 2, kda.lower_bound = -5;
  KdaInputs inputs = make_kda_inputs(kda);
  make_collinear(kda, &inputs.kda.k, 0);
  fill(&inputs.kda.g, kda.gate_dtype, -12);
  fill(&inputs.kda.beta, kda.beta_dtype, 8);
  check_case(kda, inputs);
}

TEST_CASE("kda: steps of 0 and of exactly 1") {
  for (const double beta : {0.0, 1.0}) {
    INFO("beta " << beta);
    const KdaCase kda = normalized();
    KdaInputs inputs = make_kda_inputs(kda);
    fill(&inputs.kda.beta, kda.beta_dtype, beta);
    check_case(kda, inputs);
  }
}

// Rows whose step has the magnitude of number `which` of the list.
Array rows_of_step(const Array& values, int64_t rows, size_t steps, size_t which) {
  const size_t width = values.size() / static_cast<size_t>(rows);
  Array out;
  for (size_t row = which; row < static_cast<size_t>(rows); row += steps) {
    out.insert(out.end(), values.begin() + static_cast<std::ptrdiff_t>(row * width),
               values.begin() + static_cast<std::ptrdiff_t>((row + 1) * width));
  }
  return out;
}

// Token t of one head has step number t % steps.size() of a list, or its logit. Gradients of each
// step are held against their own size, however small.
void check_steps(KdaCase kda, const std::vector<double>& steps) {
  kda.heads = kda.group = 1;
  KdaInputs inputs = make_kda_inputs(kda);
  for (size_t t = 0; t < inputs.kda.beta.size(); ++t) {
    inputs.kda.beta[t] = numbers::rounded(kda.beta_dtype, steps[t % steps.size()]);
  }
  const Outputs actual = check_case(kda, inputs);
  CHECK(all_finite(actual));
  const Outputs expected = kda_reference(kda, inputs);
  for (size_t i = 0; i < steps.size(); ++i) {
    for (const char* name : {"o", "dq", "dk", "dv", "dg", "dbeta"}) {
      INFO("step " << steps[i] << " " << name);
      const auto of = [&](const Outputs& from) {
        return rows_of_step(from.at(name), kda.rows(), steps.size(), i);
      };
      check_rms(name, of(actual), of(expected), kda_bound(kda, name));
    }
  }
}

// A walk back on Hopper leaves rows of dv in place of what beta scales, from 2^-40 on. Below, where
// a division by beta would not bring these back, it leaves them as they are.
EVERY_FAMILY_CASE("kda: steps of 0 of either sign, and some about 2^-40") {
  for (const lathe_dtype dtype : {LATHE_F32, LATHE_BF16}) {
    KdaCase kda = plain();
    kda.beta_dtype = dtype;
    kda.key_dim = 72, kda.value_dim = 40, kda.tokens = 330;
    kda.weakest = -0.2;
    check_steps(kda,
                {0.0, -0.0, 0x1p-40, -0x1p-40, 0x1.fep-41, -0x1.fep-41, 1e-30, -1e-12, 0.5, 1});
  }
  KdaCase kda = normalized();
  kda.key_dim = 72, kda.value_dim = 40, kda.tokens = 330;
  kda.weakest = -0.2;
  kda.sigmoid = kda.negative = true;
  check_steps(kda, {-27.0, -28.0, -27.725, -60.0, 0.0, 3.0});  // 2^-40 is at -27.726
}

TEST_CASE("kda: gates of 0, and of -1000 here and there and everywhere") {
  for (const double share : {0.0, 0.1, 0.5, 0.9, 1.0}) {
    INFO("share " << share);
    KdaCase kda = normalized();
    kda.weakest = share == 0.1 || share == 0.0 ? 0 : -0.1;
    kda.strong_share = share;
    check_case(kda, make_kda_inputs(kda, 1 + static_cast<uint64_t>(100 * share)));
  }
}

// A gate's gradient is then as small as its decay, among sums that are not.
TEST_CASE("kda: one strong gate for all tokens and channels") {
  for (const double gate : {-5.0, -14.0, -20.0}) {
    for (const int64_t tokens : {64, 100}) {
      INFO("gate " << gate);
      KdaCase kda = plain();
      kda.group = 1, kda.key_dim = 64, kda.tokens = tokens;
      KdaInputs inputs = make_kda_inputs(kda);
      fill(&inputs.kda.g, kda.gate_dtype, gate);
      const Outputs actual = check_case(kda, inputs);
      check_rms("dg", actual.at("dg"), kda_reference(kda, inputs).at("dg"), 2e-2, 0);
    }
  }
}

// The sum of a chunk's gates is -32000: what is left of the weak ones in it is their third digit.
TEST_CASE("kda: weak gates keep their digits among gates of -1000") {
  KdaCase kda = normalized();
  kda.element = LATHE_F32;
  kda.weakest = -0.01, kda.strong_share = 0.5;
  check_case(kda, make_kda_inputs(kda));
}

// One channel that decays, or that alone does not. In the latter case nothing averages what is
// rounded, and what steps write in it is for the most part what they take from one another.
TEST_CASE("kda: one hot channel") {
  for (const double hot : {0.0, -1000.0}) {
    INFO("hot " << hot);
    const KdaCase kda = normalized();
    KdaInputs inputs = make_kda_inputs(kda);
    const size_t width = static_cast<size_t>(kda.key_dim);
    for (size_t i = 0; i < inputs.kda.g.size(); ++i) {
      inputs.kda.g[i] = (i % width == 7) == (hot == 0.0) ? 0 : -1000;
    }
    for (size_t i = 7; i < inputs.kda.k.size(); i += width) inputs.kda.k[i] *= 64;
    check_case(kda, inputs, hot == 0.0 ? 3 : 1);
  }
  const KdaCase kda = plain();  // keys and queries that are 1 in one channel each
  KdaInputs inputs = make_kda_inputs(kda);
  const size_t width = static_cast<size_t>(kda.key_dim);
  for (size_t i = 0; i < inputs.kda.k.size(); ++i) {
    inputs.kda.k[i] = i % width == i / width * 7 % 5;
    inputs.kda.q[i] = i % width == i / width % 5;
  }
  check_case(kda, inputs);
}

TEST_CASE("kda: rows of zeros have the norm of epsilon, and keys far from 0 their own") {
  const KdaCase kda = normalized();
  KdaInputs inputs = make_kda_inputs(kda);
  const size_t width = static_cast<size_t>(kda.key_dim);
  for (size_t i = 0; i < inputs.kda.k.size(); ++i) {
    if (i / width % 5 == 2) inputs.kda.k[i] = 0;
    if (i / width % 7 == 3) inputs.kda.q[i] = 0;
  }
  CHECK(all_finite(check_case(kda, inputs)));
  inputs = make_kda_inputs(kda);
  for (double& k : inputs.kda.k) k = numbers::rounded(kda.element, 5 * k - 50);
  check_case(kda, inputs);
}

TEST_CASE("kda: bounded gates of every type at their bound, and open, and one key by weak ones") {
  for (const lathe_dtype dtype : {LATHE_BF16, LATHE_F16, LATHE_F32}) {
    for (const std::string which : {"strongest", "strongest and none", "one key", "large values"}) {
      KdaCase kda = normalized();
      kda.element = dtype;
      kda.key_dim = 64, kda.value_dim = 64, kda.group = 1, kda.tokens = 300;
      kda.gate = 2, kda.lower_bound = -5;
      kda.sigmoid = true;
      kda.backward = which.starts_with("strongest");  // gradients of the others pass 16 bits
      KdaInputs inputs = make_kda_inputs(kda);
      ref::Kda& a = inputs.kda;
      for (size_t i = 0; i < a.g.size() && which.starts_with("strongest"); ++i) {
        a.g[i] = which == "strongest" || i * 7 % 5 < 3 ? 100 : -100;
      }
      if (which == "one key") {
        make_collinear(kda, &a.k, 0);
        fill(&a.g, kda.gate_dtype, -12), fill(&a.beta, kda.beta_dtype, 8);
      }
      for (size_t i = 0; i < a.k.size() && which == "large values"; ++i) {
        a.k[i] *= i / 64 % 3 != 0, a.q[i] *= i / 64 % 3 != 1;
        a.v[i] = numbers::rounded(dtype, 1000 * a.v[i]);
      }
      INFO(which);
      check_case(kda, inputs);
    }
  }
}

TEST_CASE("kda: a bounded gate at its bound for thousands of tokens") {
  KdaCase kda;
  kda.key_dim = 32, kda.value_dim = 16;
  kda.tokens = 3000;
  kda.l2norm = true;
  kda.gate = 2, kda.lower_bound = -5;
  for (const bool safe : {false, true}) {
    kda.safe_gate = safe;
    KdaInputs inputs = make_kda_inputs(kda);
    fill(&inputs.kda.g, kda.gate_dtype, 60);
    check_case(kda, inputs);
  }
}

TEST_CASE("kda: an unbounded gate with a rate of 16") {
  KdaCase kda = normalized();
  kda.gate = 1, kda.dt_bias = true;
  KdaInputs inputs = make_kda_inputs(kda);
  fill(&inputs.kda.A_log, LATHE_F32, std::log(16.0));
  check_case(kda, inputs);
}

// exp(A_log) is no float32 from 89 on, and softplus is 0 in float32 below -104: what the decay is
// hangs on both together.
TEST_CASE("kda: a rate beyond float32 times a softplus of nearly 0") {
  for (const bool bias : {false, true}) {
    for (const double A_log : {88.0, 89.0, 100.0, 140.0}) {
      KdaCase kda = normalized();
      kda.gate = 1, kda.dt_bias = bias;
      KdaInputs inputs = make_kda_inputs(kda);
      fill(&inputs.kda.A_log, LATHE_F32, A_log);
      if (bias) fill(&inputs.kda.dt_bias, LATHE_F32, -3.0);
      for (size_t i = 0; i < inputs.kda.g.size(); ++i) {
        // Decays from exp(-e^2) to 1 - e^-20, some of 1 and some of 0.
        const double from = -A_log + (bias ? 3.0 : 0.0) + 2.0;
        const double far = i % 11 == 0 ? -40.0 : i % 13 == 0 ? 60.0 : 0.0;
        inputs.kda.g[i] = numbers::rounded(LATHE_F32, from - 22.0 * (i % 97) / 97.0 + far);
      }
      INFO("A_log " << A_log);
      CHECK(all_finite(check_case(kda, inputs)));
    }
  }
  for (const int gate : {1, 3}) {
    KdaCase kda = normalized();
    kda.gate = gate;
    KdaInputs inputs = make_kda_inputs(kda);
    fill(&inputs.kda.A_log, LATHE_F32, 89.0);
    fill(&inputs.kda.g, LATHE_F32, -120.0);
    CHECK(all_finite(check_case(kda, inputs)));
  }
}

TEST_CASE("kda: a gate below what safe_gate promises breaks nothing else") {
  KdaCase kda = normalized();
  kda.safe_gate = true;
  kda.weakest = -30;
  CHECK(all_finite(check_case(kda, make_kda_inputs(kda))));
}

// Both transforms would make something else than 0 of a row that is not there.
TEST_CASE("kda: the last block of any length adds nothing of its own") {
  for (const int64_t tokens : {1, 15, 17, 63, 65}) {
    KdaCase kda = normalized();
    kda.tokens = tokens;
    kda.gate = 3, kda.dt_bias = kda.sigmoid = kda.negative = true;
    check_case(kda, make_kda_inputs(kda, static_cast<uint64_t>(tokens)));
  }
}

TEST_CASE("kda: every value head has a gate and a step of its own") {
  for (const int64_t group : {1, 4, 10}) {
    KdaCase kda = normalized();
    kda.heads = group == 1 ? 3 : group == 4 ? 2 : 1, kda.group = group;
    kda.gate = 1, kda.dt_bias = kda.sigmoid = true;
    kda.segments = 3;
    KdaInputs inputs = make_kda_inputs(kda);
    const size_t heads = inputs.kda.A_log.size();
    for (size_t h = 0; h < heads; ++h) {
      const double rate = 1 + 7 * static_cast<double>(h) / static_cast<double>(heads - 1);
      inputs.kda.A_log[h] = static_cast<float>(std::log(rate));
    }
    check_case(kda, inputs);
  }
}

TEST_CASE("kda: empty sequences hand their states through, and lose no row of others") {
  KdaCase kda = normalized();
  kda.cu_seqlens = {0, 0, 5, 5, 5, 70, 70};
  const KdaInputs inputs = make_kda_inputs(kda);
  const Outputs out = check_case(kda, inputs);
  const size_t state = inputs.kda.initial_state.size() / 6;
  for (const size_t n : {0u, 2u, 3u, 5u}) {
    for (size_t i = n * state; i < (n + 1) * state; ++i) {
      CHECK(out.at("final_state")[i] == inputs.kda.initial_state[i]);
      CHECK(out.at("dinitial_state")[i] == inputs.kda.dht[i]);
    }
  }
}

TEST_CASE("kda: lengths that found errors in other kernels") {
  KdaCase kda = normalized();
  kda.group = 1;
  kda.key_dim = 32, kda.value_dim = 16;
  kda.scale = 0.1;
  kda.chunk_states = true;
  const std::vector<std::vector<int64_t>> lists = {
      {0, 15}, {0, 31, 96, 160}, {0, 256, 500, 1000}, {0, 15, 100, 300, 1200, 2000}, {}};
  for (const auto& list : lists) {
    kda.cu_seqlens = list;
    kda.tokens = 1500;
    kda.chunk = list.size() == 4 ? 32 : 64;
    kda.weakest = list.size() == 5 ? -0.1 : -2;
    check_case(kda, make_kda_inputs(kda));
  }
}

// A head's number times that of all heads passes 2^32. Blocks of every family find their tile by
// one function; the portable ones are the smallest.
FAMILY_CASE("portable", "kda: more than 65536 heads") {
  KdaCase kda;
  kda.heads = 65'600, kda.key_dim = kda.value_dim = 8, kda.tokens = 1;
  kda.states = KdaCase::none;
  kda.l2norm = true;
  check_case(kda, make_kda_inputs(kda));
}

TEST_CASE("kda: nothing at all, and nothing but states") {
  KdaCase kda = normalized();
  kda.tokens = 0;
  check_case(kda, make_kda_inputs(kda));
  kda.cu_seqlens = {0, 0, 0};
  check_case(kda, make_kda_inputs(kda));
  kda.padding = 20;
  check_case(kda, make_kda_inputs(kda));
  kda.cu_seqlens = {0};
  check_case(kda, make_kda_inputs(kda));
}

}  // namespace
