// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Calls of kda that must agree with one another: with kda_recurrent, in segments or in one walk,
// in pieces or at once, packed or in rows, states by key or by value first, transforms in the
// kernel or before it, and what a backward recomputes with what a forward has saved.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "tests/ops/kda/case.h"

namespace {

using namespace apitest;
using ref::Array;

KdaCase sample() {
  return {.beta_dtype = LATHE_F32,
          .group = 2,
          .key_dim = 64,
          .value_dim = 40,
          .tokens = 150,
          .l2norm = true,
          .weakest = -0.2,
          .backward = true,
          .dht = true};
}

void check_near(const Outputs& actual, const Outputs& expected, double bound) {
  for (const auto& [name, values] : expected) {
    const bool sums = name == "dg" || name == "dbeta" || name == "dA_log" || name == "ddt_bias";
    check_rms(name, actual.at(name), values, sums ? 10 * bound : bound, 1e-6);
  }
}

TEST_CASE("kda: chunked is token by token") {
  for (const lathe_dtype dtype : {LATHE_BF16, LATHE_F32}) {
    KdaCase kda = sample();
    kda.element = dtype;
    kda.backward = false;
    kda.gate = 1, kda.dt_bias = kda.sigmoid = true;
    const KdaInputs inputs = make_kda_inputs(kda);
    check_near(run_kda(kda, inputs), run_kda_recurrent(kda, inputs),
               dtype == LATHE_F32 ? 1e-5 : 5e-3);
  }
}

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

// The forward of tokens [from, to) of a case without batch.
Outputs run_part(KdaCase kda, const KdaInputs& inputs, int64_t from, int64_t to) {
  kda.backward = false;
  kda.tokens = to - from;
  return run_kda(kda, kda_slice(inputs, from, to));
}

// Blocks of 16 that begin elsewhere round elsewhere: each is within its bound of the truth.
TEST_CASE("kda: a state handed from call to call is one call") {
  const KdaCase kda = sample();
  const KdaInputs inputs = make_kda_inputs(kda);
  const Outputs once = run_part(kda, inputs, 0, 150);
  for (const int64_t cut : {1, 16, 63, 64, 65, 128, 149}) {
    KdaInputs second = inputs;
    Outputs out = run_part(kda, inputs, 0, cut);
    second.kda.initial_state = out.at("final_state");
    const Outputs rest = run_part(kda, second, cut, 150);
    out["final_state"] = rest.at("final_state");
    out["o"].insert(out["o"].end(), rest.at("o").begin(), rest.at("o").end());
    INFO("cut at " << cut);
    if (cut % 16 == 0) CHECK(out == once);  // the same blocks
    check_near(out, once, 1.4 * kda_bound(kda, "o"));
  }
}

TEST_CASE("kda: packed sequences are the rows of a batch") {
  KdaCase kda = sample();
  kda.batch = 3, kda.tokens = 75;
  kda.chunk_states = true;
  kda.chunk = 32;
  const KdaInputs inputs = make_kda_inputs(kda);
  const Outputs rows = run_kda(kda, inputs);
  check_kda(kda, inputs, rows);
  kda.cu_seqlens = {0, 75, 150, 225};
  CHECK(run_kda(kda, inputs) == rows);
}

TEST_CASE("kda: states by value first are the same states") {
  KdaCase kda = sample();
  const KdaInputs inputs = make_kda_inputs(kda);
  const Outputs by_key = run_kda(kda, inputs);
  kda.v_first = true;
  KdaInputs turned = inputs;
  turned.kda.state_v_first = true;
  const auto turn = [&](const Array& states) {
    Array out(states.size());
    for (int64_t hv = 0; hv < 2; ++hv) {
      ref::kda_store(turned.kda, ref::kda_load(inputs.kda, states, 0, hv), 0, hv, &out);
    }
    return out;
  };
  turned.kda.initial_state = turn(inputs.kda.initial_state);
  turned.kda.dht = turn(inputs.kda.dht);
  const Outputs by_value = run_kda(kda, turned);
  for (const auto& [name, values] : by_key) {
    INFO(name);
    const bool state = name == "final_state" || name == "dinitial_state";
    CHECK(by_value.at(name) == (state ? turn(values) : values));
  }
}

// The gate and the step that a kernel makes, made before and rounded to float32.
KdaInputs transformed(const KdaInputs& inputs) {
  const ref::Kda& a = inputs.kda;
  KdaInputs made = inputs;
  made.kda.gate = made.kda.sigmoid = made.kda.negative_eigenvalues = false;
  made.kda.A_log.clear(), made.kda.dt_bias.clear();
  for (int64_t row = 0; row < a.rows(); ++row) {
    for (int64_t hv = 0; hv < a.value_heads; ++hv) {
      made.kda.beta[a.beta_at(row, hv)] = static_cast<float>(ref::kda_beta(a, row, hv));
      for (int64_t d = 0; d < a.key_dim; ++d) {
        made.kda.g[a.gate_at(row, hv, d)] = static_cast<float>(ref::kda_gate(a, row, hv, d));
      }
    }
  }
  return made;
}

Outputs without_gradients_of_gates(Outputs values) {
  for (const char* name : {"dg", "dbeta", "dA_log", "ddt_bias"}) values.erase(name);
  return values;
}

// A bounded gate allows products of 16 bits where one that is given does not, and with other
// roundings: each is within its bound of the truth.
TEST_CASE("kda: transforms in the kernel are those before it") {
  const std::tuple<lathe_dtype, int, double> cases[] = {
      {LATHE_F32, 1, 1e-4}, {LATHE_BF16, 1, 3e-4}, {LATHE_BF16, 3, 7e-3}};
  for (const auto& [dtype, gate, bound] : cases) {
    KdaCase fused = sample();
    fused.element = dtype;
    fused.backward = dtype == LATHE_BF16 && gate == 3;
    fused.gate = gate, fused.dt_bias = fused.sigmoid = fused.negative = true;
    const KdaInputs inputs = make_kda_inputs(fused);
    KdaCase given = fused;
    given.gate = 0, given.dt_bias = given.sigmoid = given.negative = false;
    INFO(fused.text());
    check_near(without_gradients_of_gates(run_kda(fused, inputs)),
               without_gradients_of_gates(run_kda(given, transformed(inputs))), bound);
  }
}

// A part of V by itself takes other tiles.
TEST_CASE("kda: no value knows of another, and no result of the length of a chunk") {
  KdaCase kda = sample();
  kda.value_dim = 128;
  kda.tokens = 90;
  const KdaInputs inputs = make_kda_inputs(kda);
  const Outputs whole = run_kda(kda, inputs);
  for (const int64_t width : {8, 64}) {
    KdaCase narrow = kda;
    narrow.value_dim = width;
    KdaInputs part = inputs;
    part.kda.value_dim = width;
    const auto cut = [&](const Array& from) {
      Array to;
      for (size_t i = 0; i < from.size(); i += 128) {
        const auto row = from.begin() + static_cast<std::ptrdiff_t>(i);
        to.insert(to.end(), row, row + width);
      }
      return to;
    };
    for (const auto member :
         {&ref::Kda::v, &ref::Kda::d_o, &ref::Kda::initial_state, &ref::Kda::dht}) {
      part.kda.*member = cut(inputs.kda.*member);
    }
    const Outputs out = run_kda(narrow, part);
    for (const std::string name : {"o", "final_state", "dv", "dinitial_state"}) {
      INFO("V " << width << " " << name);
      CHECK(out.at(name) == cut(whole.at(name)));
    }
  }
  kda.chunk_states = true;
  for (const int64_t chunk : {16, 32}) {
    kda.chunk = chunk;
    Outputs out = run_kda(kda, inputs);
    out.erase("chunk_states");
    CHECK(out == whole);
  }
}

TEST_CASE("kda: saved or recomputed, in one call or in two, gradients are the same") {
  for (const int segments : {1, 3}) {
    KdaCase kda = sample();
    kda.segments = segments;
    kda.gate = 3, kda.dt_bias = kda.sigmoid = true;
    const KdaInputs inputs = make_kda_inputs(kda);
    const Outputs first = run_kda(kda, inputs);
    for (const bool saved : {false, true}) {
      for (const bool apart : {false, true}) {
        kda.saved = saved, kda.apart = apart;
        INFO(kda.text());
        CHECK(run_kda(kda, inputs) == first);
      }
    }
    kda.saved = kda.apart = false;
    for (const std::string names :
         {"dq", "dk", "dv", "dg", "dbeta", "dA_log", "ddt_bias", "dk,dv,dg,dbeta,dA_log,ddt_bias",
          "dq,dg,dbeta,dA_log,ddt_bias", "dq,dk,dv,dbeta,ddt_bias", "dq,dk,dv,dg,dA_log",
          "dq,dk,dv,dg,dbeta"}) {
      kda.gradients = names;  // the others are not wanted
      INFO(names);
      const Outputs out = run_kda(kda, inputs);
      for (const auto& [name, values] : first) {
        CHECK(out.contains(name) == (kda.wants(name) || name == "o" || name == "final_state"));
        if (out.contains(name)) CHECK(out.at(name) == values);
      }
    }
  }
}

}  // namespace
