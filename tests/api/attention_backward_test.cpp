// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The backward of flash_attention through lathe.h: parts of it, calls with nothing in them, two
// plans for one, and what must not change a bit.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "tests/api/attention_case.h"

using namespace apitest;

namespace {

Values run(const AttentionCase& attention) {
  static const Context context = make_context();
  return run_attention(context.get(), attention, make_inputs(attention));
}

void run_and_check(const AttentionCase& attention) {
  INFO(attention.text());
  check_attention(attention, make_inputs(attention), run(attention));
}

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](double x, double y) {
    return std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y);
  });
}

AttentionCase sample() {
  AttentionCase c{.dtype = LATHE_F16, .kv_heads = 2, .group = 2};
  c.queries = {70, 70}, c.keys = {90, 90};
  c.causal = c.sinks = c.backward = c.dlse = true;
  return c;
}

TEST_CASE("attention backward: any of the gradients, alone and together") {
  const char* const sets[] = {"dq", "dk", "dv", "dsinks", "dq,dv", "dk,dsinks", "dk,dv"};
  AttentionCase c = sample();
  const Values all = run(c);
  for (const char* set : sets) {
    for (const bool deterministic : {false, true}) {
      c.gradients = set;
      c.deterministic = deterministic;
      run_and_check(c);
    }
    const Values some = run(c);
    CHECK(some.size() == 2 + static_cast<size_t>(std::count(set, set + strlen(set), ',')) + 1);
    for (const char* name : {"dk", "dv", "dsinks"}) {
      if (c.wants(name)) CHECK(same_bits(some.at(name), all.at(name)));
    }
  }
}

TEST_CASE("attention backward: with a saved forward it is the same") {
  AttentionCase c = sample();
  c.deterministic = true;
  const Values joined = run(c);
  c.saved_forward = true;
  const Values apart = run(c);
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
        run_and_check(c);
      }
      c.queries = c.keys = {};  // no row of the batch: dsinks alone has elements
      run_and_check(c);
      c.packed = true;
      for (const int64_t padding : {0, 9}) {
        c.queries = c.keys = {};  // no sequence: all is padding
        c.padding_q = c.padding_k = padding;
        run_and_check(c);
        c.queries = c.keys = {0, 0, 0};
        run_and_check(c);
      }
    }
  }
}

TEST_CASE("attention backward: a new length compiles nothing") {
  AttentionCase c = sample();
  take_kernels();
  run(c);
  const auto first = take_kernels();
  CHECK(first.size() == 5);  // of the backward two do the same
  c.queries = {1, 1, 1}, c.keys = {300, 300, 300};
  c.seed = 2;
  run_and_check(c);
  CHECK(take_kernels() == first);
  c.left = 20;  // nor does a window beside a window
  c.scale = 0.3;
  run_and_check(c);
  CHECK(take_kernels() == first);
}

TEST_CASE("attention backward: promised lengths leave one kernel of each kind") {
  AttentionCase c = sample();
  c.fixed_lengths = true;
  take_kernels();
  run_and_check(c);
  CHECK(take_kernels().size() == 4);
  c.group = 1;
  c.fixed_lengths = false;
  run_and_check(c);
  CHECK(take_kernels().size() == 4);
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
  const Context context = make_context();
  const Values before = run_attention(context.get(), c, inputs);
  const Values after = run_attention(context.get(), permuted, moved);
  CHECK(same_bits(permute(before.at("out"), inputs.begin_q, 3 * width), after.at("out")));
  CHECK(same_bits(permute(before.at("dq"), inputs.begin_q, 3 * width), after.at("dq")));
  CHECK(same_bits(permute(before.at("dk"), inputs.begin_k, width), after.at("dk")));
  CHECK(same_bits(permute(before.at("dv"), inputs.begin_k, width), after.at("dv")));
}

}  // namespace
