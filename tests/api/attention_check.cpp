// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What of an attention case's outputs must hold, against float64 and a plain computation.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>

#include "tests/api/attention_case.h"
#include "tests/compare.h"
#include "tests/numbers.h"
#include "tests/ref/attention_plain.h"

namespace apitest {
namespace {

double round_f16(double value) { return numbers::rounded(LATHE_F16, value); }
double round_bf16(double value) { return numbers::rounded(LATHE_BF16, value); }

ref::Round round_of(lathe_dtype dtype) { return dtype == LATHE_F16 ? round_f16 : round_bf16; }

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

// FlashAttention's rule. The errors of the float32 sums in dsinks are those of 16-bit inputs too.
void check_near(const AttentionCase& c, const std::string& name, const std::vector<double>& actual,
                const std::vector<double>& exact, const std::vector<double>& plain) {
  const double ratio = c.softcap > 0 || (c.sinks && c.packed) ? 3 : 2;
  const double extra = c.softcap > 0 && name != "out" ? 3e-4 : 0;
  const double bound = ref::max2x_bound(exact, plain, ratio, round_of(c.dtype), extra);
  const auto verdict = compare::compare(name, actual, exact, {static_cast<int64_t>(exact.size())},
                                        {compare::Rule::kMax2x, bound, 0});
  CHECK_MESSAGE(verdict.ok, verdict.text);
}

// Sees a wrong block that the largest error forgives. A gradient that is all but cancelled has no
// direction of its own: then that of a plain computation is off too, or what follows from out.
void check_direction(const std::string& name, const std::vector<double>& actual,
                     const std::vector<double>& exact, const std::vector<double>& plain,
                     const std::function<std::vector<double>()>& from_out) {
  const double found = ref::cosine_difference(actual, exact);
  double allowed = std::max(1e-5, 2 * ref::cosine_difference(plain, exact));
  if (found >= allowed) {
    allowed = std::max(allowed, 2 * ref::cosine_difference(from_out(), exact));
  }
  CHECK_MESSAGE(found < allowed, name, ": cosine difference ", found, ", allowed ", allowed);
}

// [rows, columns] of sequences, and 0 in the rows behind them.
void check_tokens(const AttentionCase& c, const std::string& name, const Rows& rows,
                  const std::vector<double>& actual, const std::vector<double>& exact,
                  const std::vector<double>& plain,
                  const std::function<std::vector<double>()>& from_out) {
  REQUIRE(actual.size() == exact.size() + static_cast<size_t>(rows.padding * rows.columns));
  const auto own = rows.compared(actual), right = rows.compared(exact);
  check_near(c, name, own, right, rows.compared(plain));
  check_direction(name, own, right, rows.compared(plain),
                  [&] { return rows.compared(from_out()); });
  const bool zero = std::all_of(actual.begin() + static_cast<ptrdiff_t>(exact.size()), actual.end(),
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

// The exact gradients that follow from out as it is: its errors, which have been checked, are
// in delta by definition.
ref::AttentionBackward gradients_of_out(const ref::Attention& in, ref::AttentionForward forward,
                                        const Values& actual) {
  const auto& out = actual.at("out");
  forward.out.assign(out.begin(), out.begin() + static_cast<ptrdiff_t>(forward.out.size()));
  return ref::attention_backward(in, forward);
}

// So few elements that a plain computation may have no error by chance: what the errors of out
// cost counts as plain too.
void check_sinks(const AttentionCase& c, const std::vector<double>& actual,
                 const std::vector<double>& exact, std::vector<double> plain,
                 const std::vector<double>& from_out) {
  for (size_t h = 0; h < exact.size(); ++h) {
    if (std::abs(from_out[h] - exact[h]) > std::abs(plain[h] - exact[h])) plain[h] = from_out[h];
  }
  check_near(c, "dsinks", actual, exact, plain);
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
  check_tokens(c, "out", queries(c.value_dim), actual.at("out"), exact.out, plain.out,
               [&] { return exact.out; });
  check_lse(c, queries(1), actual.at("lse"), exact.lse);
  if (c.ones && !c.sinks && c.poisoned < 0) check_ones(actual.at("out"), exact.out);
  if (c.backward) {
    using Gradients = ref::AttentionBackward;
    const Gradients right = ref::attention_backward(in, exact);
    const Gradients rough = ref::plain_backward(in, round);
    const auto check = [&](const char* name, const Rows& rows, ref::Array Gradients::*of) {
      if (!c.wants(name)) return;
      check_tokens(c, name, rows, actual.at(name), right.*of, rough.*of,
                   [&] { return gradients_of_out(in, exact, actual).*of; });
    };
    check("dq", queries(c.head_dim), &Gradients::dq);
    check("dk", keys(c.head_dim), &Gradients::dk);
    check("dv", keys(c.value_dim), &Gradients::dv);
    // A poisoned sequence is part of every sum over sequences.
    if (c.sinks && c.wants("dsinks") && c.poisoned < 0) {
      check_sinks(c, actual.at("dsinks"), right.dsinks, rough.dsinks,
                  gradients_of_out(in, exact, actual).dsinks);
    }
  }
  for (const auto& finding : take_report().findings) FAIL_CHECK(finding);
}

}  // namespace apitest
