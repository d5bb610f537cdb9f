// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What of an attention case's outputs must hold, against float64 and a plain computation.
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/api/attention_case.h"
#include "tests/compare.h"
#include "tests/numbers.h"
#include "tests/ref/attention_plain.h"

namespace apitest {
namespace {

double round_f32(double value) { return numbers::rounded(LATHE_F32, value); }
double round_f16(double value) { return numbers::rounded(LATHE_F16, value); }
double round_bf16(double value) { return numbers::rounded(LATHE_BF16, value); }

ref::Round round_of(lathe_dtype dtype) {
  return dtype == LATHE_F32 ? round_f32 : dtype == LATHE_F16 ? round_f16 : round_bf16;
}

// Which elements of an output are compared: not those of the poisoned sequence.
struct Rows {
  const std::vector<int64_t>& begin;
  int64_t columns, padding, poisoned;

  std::vector<double> compared(const std::vector<double>& values) const {
    const auto end = values.begin() + begin.back() * columns;
    if (poisoned < 0) return {values.begin(), end};
    std::vector<double> out(values.begin(), values.begin() + begin[poisoned] * columns);
    out.insert(out.end(), values.begin() + begin[poisoned + 1] * columns, end);
    return out;
  }
};

void check_near(const AttentionCase& c, const std::string& name, lathe_dtype dtype,
                const std::vector<double>& actual, const std::vector<double>& exact,
                const std::vector<double>& plain) {
  const double ratio = c.softcap > 0 || (c.sinks && c.packed) ? 3 : 2;
  const double extra = c.softcap > 0 && name != "out" ? 3e-4 : 0;
  const double bound = ref::max2x_bound(exact, plain, ratio, round_of(dtype), extra);
  const auto verdict = compare::compare(name, actual, exact, {static_cast<int64_t>(exact.size())},
                                        {compare::Rule::kMax2x, bound, 0});
  CHECK_MESSAGE(verdict.ok, verdict.text);
  // A gradient that is nothing but rounding errors has no direction, in the plain computation
  // neither.
  const double allowed = std::max(1e-5, 2 * ref::cosine_difference(plain, exact));
  const double found = ref::cosine_difference(actual, exact);
  CHECK_MESSAGE(found < allowed, name, ": cosine difference ", found, ", allowed ", allowed);
}

// [rows, columns] of sequences, and 0 in the rows behind them.
void check_tokens(const AttentionCase& c, const std::string& name, const Rows& rows,
                  const std::vector<double>& actual, const std::vector<double>& exact,
                  const std::vector<double>& plain) {
  REQUIRE(actual.size() == exact.size() + static_cast<size_t>(rows.padding * rows.columns));
  check_near(c, name, c.dtype, rows.compared(actual), rows.compared(exact), rows.compared(plain));
  const bool zero = std::all_of(actual.begin() + exact.size(), actual.end(),
                                [](double value) { return value == 0; });
  CHECK_MESSAGE(zero, name, " is not 0 in the rows behind the last sequence");
}

// [H, rows] if packed, with -inf behind; [B, H, Sq] otherwise.
void check_lse(const AttentionCase& c, const Rows& rows, const std::vector<double>& actual,
               const std::vector<double>& exact) {
  const auto agree = [](double a, double r) {
    return a == r || (std::isfinite(r) && std::abs(a - r) <= 1e-5 + 1e-5 * std::abs(r));
  };
  if (!c.packed) {
    REQUIRE(actual.size() == exact.size());
    for (size_t i = 0; i < exact.size(); ++i) {
      if (!agree(actual[i], exact[i]))
        FAIL("lse[" << i << "]: " << actual[i] << " for " << exact[i]);
    }
    return;
  }
  const int64_t used = rows.begin.back(), all = used + rows.padding;
  REQUIRE(static_cast<int64_t>(actual.size()) == c.heads() * all);
  for (int64_t h = 0; h < c.heads(); ++h) {
    for (int64_t row = 0; row < all; ++row) {
      if (c.poisoned >= 0 && row >= rows.begin[c.poisoned] && row < rows.begin[c.poisoned + 1]) {
        continue;
      }
      const double expected = row < used ? exact[h * used + row] : -ref::kInfinity;
      const double found = actual[h * all + row];
      if (!agree(found, expected)) {
        FAIL("lse of head " << h << ", row " << row << ": " << found << " for " << expected);
      }
    }
  }
}

// Without sinks a row of weights adds up to 1: exactly, since every product is a weight.
void check_ones(const std::vector<double>& out, const std::vector<double>& exact) {
  for (size_t i = 0; i < exact.size(); ++i) {
    const double expected = exact[i] == 0 ? 0 : 1;
    if (out[i] != expected) FAIL("out[" << i << "] of all-ones v is " << out[i]);
  }
}

}  // namespace

void check_attention(const AttentionCase& c, const ref::Attention& in, const Values& actual) {
  const ref::Round round = round_of(c.dtype);
  const ref::AttentionForward exact = ref::attention_forward(in);
  const ref::AttentionForward plain = ref::plain_forward(in, round);
  const auto queries = [&](int64_t width) {
    return Rows{in.begin_q, c.heads() * width, c.padding_q, c.poisoned};
  };
  const auto keys = [&](int64_t width) {
    return Rows{in.begin_k, c.kv_heads * width, c.padding_k, c.poisoned};
  };
  check_tokens(c, "out", queries(c.value_dim), actual.at("out"), exact.out, plain.out);
  check_lse(c, queries(1), actual.at("lse"), exact.lse);
  if (c.ones && !c.sinks && c.poisoned < 0) check_ones(actual.at("out"), exact.out);
  if (c.backward) {
    const ref::AttentionBackward right = ref::attention_backward(in, exact);
    const ref::AttentionBackward rough = ref::plain_backward(in, round);
    check_tokens(c, "dq", queries(c.head_dim), actual.at("dq"), right.dq, rough.dq);
    check_tokens(c, "dk", keys(c.head_dim), actual.at("dk"), right.dk, rough.dk);
    check_tokens(c, "dv", keys(c.value_dim), actual.at("dv"), right.dv, rough.dv);
    // A poisoned sequence is part of every sum over sequences.
    if (c.sinks && c.poisoned < 0) {
      check_near(c, "dsinks", LATHE_F32, actual.at("dsinks"), right.dsinks, rough.dsinks);
    }
  }
  for (const auto& finding : take_report().findings) FAIL_CHECK(finding);
}

}  // namespace apitest
