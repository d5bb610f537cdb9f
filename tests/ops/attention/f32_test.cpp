// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover flash_attention of float32, forward and backward: no error above twice that of
// a program that computes in float32 throughout, nothing rounded to less.
#include "tests/harness/check.h"
#include "tests/ops/attention/case.h"

using namespace apitest;

namespace {

TEST_CASE("attention of float32: narrow heads, grouped, causal") {
  AttentionCase c{.dtype = LATHE_F32, .head_dim = 64, .value_dim = 64, .kv_heads = 2, .group = 2};
  c.queries = {40, 40}, c.keys = {70, 70};
  c.causal = c.sinks = c.backward = c.dlse = true;
  checked(c);
}

TEST_CASE("attention of float32: packed, with every option") {
  AttentionCase c{.dtype = LATHE_F32, .head_dim = 104, .value_dim = 40, .group = 3};
  c.packed = c.sinks = c.backward = c.saved_forward = true;
  c.queries = {0, 17, 5, 33}, c.keys = {9, 40, 0, 30};
  c.padding_q = 3, c.padding_k = 5;
  c.left = 20, c.right = 3;
  c.softcap = 5, c.slopes = Slopes::per_sequence;
  checked(c);
}

TEST_CASE("attention of float32: the widest heads, in order") {
  AttentionCase c{.dtype = LATHE_F32, .head_dim = 256, .value_dim = 200};
  c.queries = {30}, c.keys = {50};
  c.left = 16, c.right = 4;
  c.backward = c.deterministic = true;
  checked(c);
}

TEST_CASE("attention of float32: values of ones give ones, to the bit") {
  AttentionCase c{.dtype = LATHE_F32, .head_dim = 80, .value_dim = 8};
  c.queries = {33}, c.keys = {130};
  c.ones = true;
  checked(c);
}

// Returns the largest error of a row; NaN if any value is NaN.
double row_error(const Values& found, const ref::Array& expected, size_t row) {
  double worst = 0;
  for (size_t i = row * 64; i < (row + 1) * 64; ++i) {
    const double error = std::abs(found[i] - expected[i]);
    if (!(error <= worst) && !std::isnan(worst)) worst = error;  // nan stays
  }
  return worst;
}

TEST_CASE("attention of float32: it keeps its exponents, and NaN to its rows") {
  AttentionCase c{.dtype = LATHE_F32, .queries = {70}, .keys = {70}, .causal = true};
  c.seed = 11;
  ref::Attention a = make_inputs(c);
  for (double& x : a.q) x *= 0x1p90;  // far outside f16, and outside what squares hold
  for (double& x : a.k) x *= 0x1p-90;
  for (double& x : a.v) x *= 0x1p120;
  const ref::AttentionForward exact = ref::attention_forward(a);
  const Answer good = run(attention_call(c, a, AttentionPart::forward));
  for (size_t row = 0; row < 70; ++row) {
    CHECK(row_error(good.at("out"), exact.out, row) < 4e-6 * 0x1p120);
  }
  // The last key and the query of row 20 are spoilt: rows 20 and 69, and no others, see it.
  a.k[69 * 64 + 3] = std::nan("");
  a.q[20 * 64 + 9] = std::nan("");
  const Answer spoilt = run(attention_call(c, a, AttentionPart::forward));
  for (size_t row = 0; row < 70; ++row) {
    CAPTURE(row);
    if (row == 20 || row == 69) {
      CHECK(std::isnan(spoilt.at("out")[row * 64]));
      CHECK(std::isnan(spoilt.at("lse")[row]));
    } else {
      CHECK(row_error(spoilt.at("out"), exact.out, row) < 4e-6 * 0x1p120);
    }
  }
}

}  // namespace
