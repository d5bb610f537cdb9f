// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// flash_attention of float32 through lathe.h, forward and backward: what the kernels round is near
// 1e-6 of values near 1, where 16 bits would leave 1e-3. That they are within twice a plain float32
// computation is tested with the kernels.
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/api/attention_case.h"

using namespace apitest;

namespace {

constexpr double kTolerance = 1e-5;

// The elements of sequences; rows behind them are checked to be 0.
void check_close(const char* name, const std::vector<double>& actual, const ref::Array& exact) {
  CAPTURE(name);
  REQUIRE(actual.size() >= exact.size());
  double worst = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    const double error = std::abs(actual[i] - exact[i]) / (1 + std::abs(exact[i]));
    if (!(error <= worst) && !std::isnan(worst)) worst = error;  // nan stays
  }
  CHECK(worst <= kTolerance);
  CHECK(std::all_of(actual.begin() + static_cast<ptrdiff_t>(exact.size()), actual.end(),
                    [](double value) { return value == 0; }));
}

void run_and_check(const AttentionCase& c) {
  static const Context context = make_context();
  INFO(c.text());
  const ref::Attention inputs = make_inputs(c);
  const Values actual = run_attention(context.get(), c, inputs);
  const ref::AttentionForward forward = ref::attention_forward(inputs);
  check_close("out", actual.at("out"), forward.out);
  if (!c.backward) return;
  const ref::AttentionBackward exact = ref::attention_backward(inputs, forward);
  check_close("dq", actual.at("dq"), exact.dq);
  check_close("dk", actual.at("dk"), exact.dk);
  check_close("dv", actual.at("dv"), exact.dv);
  if (c.sinks) check_close("dsinks", actual.at("dsinks"), exact.dsinks);
}

TEST_CASE("attention of float32: narrow heads, grouped, causal") {
  AttentionCase c{.dtype = LATHE_F32, .head_dim = 64, .value_dim = 64, .kv_heads = 2, .group = 2};
  c.queries = {40, 40}, c.keys = {70, 70};
  c.causal = c.sinks = c.backward = c.dlse = true;
  run_and_check(c);
}

TEST_CASE("attention of float32: packed, with every option") {
  AttentionCase c{.dtype = LATHE_F32, .head_dim = 104, .value_dim = 40, .group = 3};
  c.packed = c.sinks = c.backward = c.saved_forward = true;
  c.queries = {0, 17, 5, 33}, c.keys = {9, 40, 0, 30};
  c.padding_q = 3, c.padding_k = 5;
  c.left = 20, c.right = 3;
  c.softcap = 5, c.slopes = Slopes::per_sequence;
  run_and_check(c);
}

TEST_CASE("attention of float32: the widest heads, in order") {
  AttentionCase c{.dtype = LATHE_F32, .head_dim = 256, .value_dim = 200};
  c.queries = {30}, c.keys = {50};
  c.left = 16, c.right = 4;
  c.backward = c.deterministic = true;
  run_and_check(c);
}

TEST_CASE("attention of float32: values of ones give ones, to the bit") {
  AttentionCase c{.dtype = LATHE_F32, .head_dim = 80, .value_dim = 8};
  c.queries = {33}, c.keys = {130};
  c.ones = true;
  static const Context context = make_context();
  const Values actual = run_attention(context.get(), c, make_inputs(c));
  const auto& out = actual.at("out");
  CHECK(std::count(out.begin(), out.end(), 1.0) == static_cast<ptrdiff_t>(out.size()));
}

}  // namespace
