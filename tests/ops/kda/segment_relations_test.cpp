// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Calls of kda in segments and in one walk agree: exactly, or as near as segments that warm up are.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "tests/ops/kda/relations.h"

namespace {

using namespace apitest;
using ref::Array;

KdaCase narrow_float32() {
  KdaCase kda = sample();
  kda.element = LATHE_F32;
  kda.group = 1;
  kda.key_dim = 32, kda.value_dim = 16;
  kda.gate = 1;
  kda.chunk_states = true;
  return kda;
}

TEST_CASE("kda: segments are exact") {
  KdaCase kda = narrow_float32();
  kda.heads = 2;
  kda.tokens = 500;
  const KdaInputs inputs = make_kda_inputs(kda);
  kda.segments = 1;
  const Outputs one = run_kda(kda, inputs);
  check_kda(kda, inputs, one);
  for (const int segments : {2, 3, 8}) {
    INFO(segments << " segments");
    kda.segments = segments;
    check_near(run_kda(kda, inputs), one, 1e-5);
  }
}

// A decay of .999 a token keeps a tenth of a state over 32 links.
TEST_CASE("kda: a chain of 32 segments loses nothing") {
  KdaCase kda = narrow_float32();
  kda.tokens = 32 * 64;
  kda.segments = 32;
  KdaInputs inputs = make_kda_inputs(kda);
  inputs.kda.A_log = {0.0};
  const double raw = std::log(std::expm1(-std::log(0.999)));  // softplus makes -log(.999) of it
  for (double& g : inputs.kda.g) g = static_cast<float>(raw);
  for (double& beta : inputs.kda.beta) beta = static_cast<float>(0.01 * beta);
  const Outputs out = run_kda(kda, inputs);
  check_near({{"final_state", out.at("final_state")}},
             {{"final_state", kda_reference(kda, inputs).at("final_state")}}, 1e-5);
  check_kda(kda, inputs, out);
}

// Started from nothing as late as its bound allows: a millionth of a state may be missing, and none
// where gates are so weak that it must start with the sequence.
TEST_CASE("kda: segments that warm up are near, and the same where they cannot be") {
  KdaCase kda = sample();
  kda.element = LATHE_F32;
  kda.tokens = 600;
  kda.backward = false;
  for (const double weakest : {-1.0, 0.0}) {
    kda.weakest = weakest;
    KdaInputs inputs = make_kda_inputs(kda);
    for (double& g : inputs.kda.g) g = static_cast<float>(g + weakest / 4);
    kda.segments = 1, kda.warmup_segments = 0;
    const Outputs exact = run_kda(kda, inputs);
    kda.segments = 0, kda.warmup_segments = 4;
    INFO(kda.text());
    check_near(run_kda(kda, inputs), exact, weakest < 0 ? 4e-6 : 1e-6);
  }
}

// A segment that starts early sees no token before its start, and where gates are too weak for the
// bound it starts with the sequence: then the bits are those of one walk.
TEST_CASE("kda: segments that warm up start no earlier than they must") {
  KdaCase kda = sample();
  kda.element = LATHE_F32;
  kda.key_dim = 60, kda.value_dim = 32, kda.group = 1;
  kda.cu_seqlens = {0, 330, 660};
  kda.chunk_states = true;
  kda.backward = false;
  KdaInputs inputs = make_kda_inputs(kda);
  const auto run = [&](int segments, int warmup) {
    kda.segments = segments, kda.warmup_segments = warmup;
    return run_kda(kda, inputs);
  };
  const Array shares = inputs.kda.g;
  for (const double weakest : {-1.0, -0.1}) {  // 17 nats: 17 tokens, and 166
    INFO("weakest " << weakest);
    for (size_t i = 0; i < shares.size(); ++i) {
      inputs.kda.g[i] = static_cast<float>(weakest * (1 + 10 * -shares[i]));
    }
    inputs.kda.v[0] = 1;
    check_near(run(0, 3), run(1, 0), 2e-6);
    // The third segment begins at token 256, so that the first token is out of its sight.
    inputs.kda.v[0] = NAN;
    CHECK(std::isfinite(run(0, 3).at("o")[300 * 32]));
    CHECK_FALSE(std::isfinite(run(1, 0).at("o")[300 * 32]));
  }
  kda.cu_seqlens = {0, 0, 200, 201, 330};
  kda.key_dim = 64, kda.value_dim = 40, kda.group = 2;
  inputs = make_kda_inputs(kda);
  // One channel of each token keeps what the others lose.
  for (size_t i = 0; i < inputs.kda.g.size(); ++i) {
    inputs.kda.g[i] = i % 64 == i / 128 % 64 ? static_cast<float>(-1e-3) : -1;
  }
  const Outputs whole = run(1, 0);
  for (const int segments : {1, 3, 4}) CHECK(run(0, segments) == whole);
}

// Packed sequences of every length beside a segment's: short ones have empty segments.
TEST_CASE("kda: packed sequences in segments, some of a token and some of none") {
  KdaCase kda = sample();
  kda.cu_seqlens = {0, 1, 1, 66, 194, 195, 450};
  for (const int segments : {1, 2, 3, 7}) {
    kda.segments = segments;
    const KdaInputs inputs = make_kda_inputs(kda);
    INFO(kda.text());
    check_kda(kda, inputs);
  }
}

// Blocks of 16 that begin elsewhere round elsewhere: each is within its bound of the truth.

}  // namespace
