// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover calls of kda that must agree with one another: with kda_recurrent, in pieces or
// at once, packed or in rows, states by key or by value first, transforms in the kernel or before
// it, and what a backward recomputes with what a forward has saved.
#include "tests/ops/kda/relations.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "tests/harness/family_case.h"

namespace {

using namespace apitest;
using ref::Array;

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

// Runs the forward of tokens [from, to) of a case without batch.
Outputs run_part(KdaCase kda, const KdaInputs& inputs, int64_t from, int64_t to) {
  kda.backward = false;
  kda.tokens = to - from;
  return run_kda(kda, kda_slice(inputs, from, to));
}

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

// Returns inputs with the gate and the step that a kernel makes, made before and rounded to
// float32.
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
TEST_CASE("kda: no value knows of another") {
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
}

// Hopper's kernels leave such calls to the portable ones, whose bits are others.
FAMILY_CASE("portable", "kda: no result knows of the length of a chunk") {
  KdaCase kda = sample();
  kda.tokens = 90;
  const KdaInputs inputs = make_kda_inputs(kda);
  const Outputs whole = run_kda(kda, inputs);
  kda.chunk_states = true;
  for (const int64_t chunk : {16, 32}) {
    kda.chunk = chunk;
    Outputs out = run_kda(kda, inputs);
    out.erase("chunk_states");
    CHECK(out == whole);
  }
}

// With a value head for each head, gradients are those of Hopper's kernels on sm_90a.
TEST_CASE("kda: saved or recomputed, in one call or in two, gradients are the same") {
  for (const auto& [segments, group] : {std::pair(1, 2), std::pair(3, 2), std::pair(1, 1)}) {
    KdaCase kda = sample();
    kda.segments = segments, kda.group = group;
    kda.gate = 3, kda.dt_bias = kda.sigmoid = true;
    const KdaInputs inputs = make_kda_inputs(kda);
    const Outputs first = run_kda(kda, inputs);
    for (const bool saved : {false, true}) {
      for (const bool apart : {false, true}) {
        kda.saved = saved, kda.apart = apart;
        INFO(kda.text());
        Outputs out = run_kda(kda, inputs);
        check_kda(kda, inputs, out);
        if (!saved && apart) {  // a forward that keeps nothing may be another kernel
          for (const char* name : {"o", "final_state"}) out[name] = first.at(name);
        }
        CHECK(out == first);
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
