// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the backward of flash_attention through lathe.h: parts of it, calls with
// nothing in them, two plans for one, and what must not change a bit.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "tests/harness/check.h"
#include "tests/numbers.h"
#include "tests/ops/attention/case.h"

using namespace apitest;

namespace {

AttentionCase sample() {
  AttentionCase c{.dtype = LATHE_F16, .kv_heads = 2, .group = 2};
  c.queries = {70, 70}, c.keys = {90, 90};
  c.causal = c.sinks = c.backward = c.dlse = true;
  return c;
}

TEST_CASE("attention backward: any of the gradients, alone and together") {
  const char* const sets[] = {"dq", "dk", "dv", "dsinks", "dq,dv", "dk,dsinks", "dk,dv"};
  AttentionCase c = sample();
  const Outputs all = checked(c).outputs;
  for (const char* set : sets) {
    for (const bool deterministic : {false, true}) {
      c.gradients = set;
      c.deterministic = deterministic;
      checked(c);
    }
    const Outputs some = checked(c).outputs;
    CHECK(some.size() == 2 + static_cast<size_t>(std::count(set, set + strlen(set), ',')) + 1);
    for (const char* name : {"dk", "dv", "dsinks"}) {
      if (c.wants(name)) CHECK(same_bits(some.at(name), all.at(name)));
    }
  }
}

TEST_CASE("attention backward: with a saved forward it is the same") {
  AttentionCase c = sample();
  c.deterministic = true;
  const Outputs joined = checked(c).outputs;
  c.saved_forward = true;
  const Outputs apart = checked(c).outputs;
  REQUIRE(joined.size() == apart.size());
  for (const auto& [name, values] : joined) {
    CAPTURE(name);
    CHECK(same_bits(values, apart.at(name)));
  }
}

// Gradients that have elements are written, without a sequence, a row or a key too.
TEST_CASE("attention backward: empty calls") {
  for (const bool deterministic : {false, true}) {
    for (const bool saved : {false, true}) {
      AttentionCase c = sample();
      c.deterministic = deterministic;
      c.saved_forward = saved;
      for (const auto& [queries, keys] : {std::pair(0, 90), std::pair(70, 0), std::pair(0, 0)}) {
        c.queries = {queries, queries}, c.keys = {keys, keys};
        checked(c);
      }
      c.queries = c.keys = {};  // no row of the batch: dsinks alone has elements
      checked(c);
      c.packed = true;
      for (const int64_t padding : {0, 9}) {
        c.queries = c.keys = {};  // no sequence: all is padding
        c.padding_q = c.padding_k = padding;
        checked(c);
        c.queries = c.keys = {0, 0, 0};
        checked(c);
      }
    }
  }
}

TEST_CASE("attention backward: a new length compiles nothing") {
  AttentionCase c = sample();
  const auto first = kernels_of(checked(c));
  CHECK(first.size() == 5);  // of the backward two do the same
  c.queries = {1, 1, 1}, c.keys = {300, 300, 300};
  c.seed = 2;
  CHECK(kernels_of(checked(c)) == first);
  c.left = 20;  // nor does a window beside a window
  c.scale = 0.3;
  CHECK(kernels_of(checked(c)) == first);
}

TEST_CASE("attention backward: declared lengths leave one kernel of each kind") {
  AttentionCase c = sample();
  c.fixed_lengths = true;
  CHECK(kernels_of(checked(c)).size() == 4);
  c.group = 1;
  c.fixed_lengths = false;
  CHECK(kernels_of(checked(c)).size() == 4);
}

// A sequence does not see its neighbours: what its rows and keys get follows it.
TEST_CASE("attention: permuting sequences permutes results bit for bit") {
  AttentionCase c{.kv_heads = 1, .group = 3, .packed = true, .causal = true, .backward = true};
  c.queries = {40, 0, 130, 65}, c.keys = {70, 9, 100, 0};
  const ref::Attention inputs = make_inputs(c);
  const std::vector<size_t> order = {2, 3, 0, 1};
  AttentionCase permuted = c;
  ref::Attention moved = inputs;
  // Parts of [rows, columns] in the other order.
  const auto permute = [&](const std::vector<double>& values, const std::vector<int64_t>& begin,
                           int64_t columns) {
    std::vector<double> out;
    for (const size_t n : order) {
      out.insert(out.end(), values.begin() + begin[n] * columns,
                 values.begin() + begin[n + 1] * columns);
    }
    return out;
  };
  const int64_t width = 64;
  moved.q = permute(inputs.q, inputs.begin_q, 3 * width);
  moved.dout = permute(inputs.dout, inputs.begin_q, 3 * width);
  moved.k = permute(inputs.k, inputs.begin_k, width);
  moved.v = permute(inputs.v, inputs.begin_k, width);
  for (size_t i = 0; i < order.size(); ++i) {
    permuted.queries[i] = c.queries[order[i]], permuted.keys[i] = c.keys[order[i]];
    moved.begin_q[i + 1] = moved.begin_q[i] + permuted.queries[i];
    moved.begin_k[i + 1] = moved.begin_k[i] + permuted.keys[i];
  }
  c.deterministic = permuted.deterministic = true;
  const Answer before = checked(c, inputs), after = checked(permuted, moved);
  CHECK(same_bits(permute(before.at("out"), inputs.begin_q, 3 * width), after.at("out")));
  CHECK(same_bits(permute(before.at("dq"), inputs.begin_q, 3 * width), after.at("dq")));
  CHECK(same_bits(permute(before.at("dk"), inputs.begin_k, width), after.at("dk")));
  CHECK(same_bits(permute(before.at("dv"), inputs.begin_k, width), after.at("dv")));
}

TEST_CASE("attention backward: NaN of one sequence stays in it, to the bit") {
  AttentionCase c{.dtype = LATHE_F16, .head_dim = 128, .value_dim = 128, .group = 2};
  c.queries = {65, 33, 70}, c.keys = {100, 29, 140}, c.padding_q = c.padding_k = 3;
  c.packed = c.causal = c.backward = c.deterministic = true;
  c.softcap = 3, c.slopes = Slopes::per_head;
  const Answer clean = checked(c);
  // The last one lies beside padding, in a tile with it.
  for (const size_t poisoned : {1, 2}) {
    CAPTURE(poisoned);
    c.poisoned = static_cast<int64_t>(poisoned);
    const Answer answer = checked(c);
    for (const auto& [name, values] : clean.outputs) {
      CAPTURE(name);
      if (name == "lse") continue;  // [H, T]: compared with float64 above
      const bool rows = name == "dq" || name == "out";
      const std::vector<int64_t>& lengths = rows ? c.queries : c.keys;
      const auto first = lengths.begin() + c.poisoned;
      const int64_t row = (rows ? 2 : 1) * 128;
      const int64_t begin = std::accumulate(lengths.begin(), first, int64_t{0}) * row;
      const int64_t end = begin + *first * row;
      const Values& found = answer.at(name);
      CHECK(std::equal(values.begin(), values.begin() + begin, found.begin()));
      CHECK(std::equal(values.begin() + end, values.end(), found.begin() + end));
    }
  }
}

TEST_CASE("attention backward: empty sequences, and nothing but padding") {
  const std::pair<std::vector<int64_t>, std::vector<int64_t>> lengths[] = {
      {{0, 5, 0, 17, 0}, {0, 0, 9, 40, 0}}, {{0, 0}, {0, 0}}, {{4}, {0}}, {{0}, {6}}};
  for (const auto& [queries, keys] : lengths) {
    AttentionCase c{.head_dim = 96, .value_dim = 88, .queries = queries, .keys = keys};
    c.cu_dtype = LATHE_I64, c.padding_q = 2, c.padding_k = 130, c.seed = 4;
    c.packed = c.causal = c.sinks = c.dlse = c.backward = true;
    const Answer answer = checked(c);
    if (*std::max_element(keys.begin(), keys.end()) > 0) continue;
    for (const char* name : {"dq", "dk"}) {
      for (const double x : answer.at(name)) REQUIRE(x == 0);
    }
  }
}

TEST_CASE("attention backward: causal rows above the first key have no gradient at all") {
  AttentionCase c{.dtype = LATHE_F16, .head_dim = 128, .value_dim = 128};
  c.queries = {190}, c.keys = {60}, c.seed = 2;
  c.causal = c.sinks = c.backward = c.deterministic = true;
  const Values dq = checked(c).at("dq");
  const auto zeros = [&](int64_t begin, int64_t end) {
    return std::count(dq.begin() + begin * 128, dq.begin() + end * 128, 0.0);
  };
  CHECK(zeros(0, 130) == 130 * 128);
  CHECK(zeros(131, 190) < 59 * 128);
}

TEST_CASE("attention backward: scores far below zero do not overflow behind the last key") {
  AttentionCase c{.head_dim = 128, .value_dim = 128, .queries = {70}, .keys = {70}};
  c.scale = 1, c.backward = true;
  ref::Attention a = make_inputs(c);
  for (double& x : a.q) x = numbers::rounded(c.dtype, 4 + x / 64);
  for (double& x : a.k) x = numbers::rounded(c.dtype, x / 64 - 4);
  REQUIRE(ref::attention_forward(a).lse[0] < -1000);
  checked(c, a);
}

}  // namespace
