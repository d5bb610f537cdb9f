// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Checks the outputs of an attention case against float64 and a plain computation.
#include "tests/harness/check.h"

#include <algorithm>
#include <functional>

#include "reference/attention_plain.h"
#include "tests/compare.h"
#include "tests/numbers.h"
#include "tests/ops/attention/case.h"

namespace apitest {
namespace {

double round_f16(double value) { return numbers::rounded(LATHE_F16, value); }
double round_bf16(double value) { return numbers::rounded(LATHE_BF16, value); }

double round_f32(double value) { return numbers::rounded(LATHE_F32, value); }

ref::Round round_of(lathe_dtype dtype) {
  return dtype == LATHE_F32 ? round_f32 : dtype == LATHE_F16 ? round_f16 : round_bf16;
}

double largest(const ref::Array& values) {
  double most = 0;
  for (const double value : values) {
    if (std::isfinite(value)) most = std::max(most, std::abs(value));
  }
  return most;
}

// Float32 gradients may be off by more than the rule says. Where dp and delta are the same, their
// difference keeps the rounding of out, from which delta comes. And a weight exp(x - lse) loses
// what the rounding of lse loses.
double extra_of_f32(const std::string& name, const ref::Attention& in,
                    const ref::AttentionForward& forward) {
  if (name == "dv") return 0x1p-23 * largest(forward.lse) * largest(in.dout);
  double products = 0;
  ref::each_row(in, [&](int64_t, const ref::AttentionRow& row) {
    double sum = 0;
    for (int64_t c = 0; c < in.value_dim; ++c) {
      sum += std::abs(in.dout[row.out() + c] * forward.out[row.out() + c]);
    }
    products = std::max(products, sum);
  });
  const double delta = 4 * 0x1p-24 * products;
  if (name == "dsinks") return delta;
  return delta * in.scale * largest(name == "dq" ? in.k : in.q);
}

// Selects the elements of an output that are compared: not those of the poisoned sequence.
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
void check_near(const AttentionCase& c, const std::string& name, const Values& actual,
                const Values& exact, const Values& plain, double extra_f32) {
  const bool narrow = c.dtype != LATHE_F32;
  const double ratio = c.softcap > 0 || (c.sinks && c.packed) ? 3 : 2;
  const double extra = !narrow ? extra_f32 : c.softcap > 0 && name != "out" ? 3e-4 : 0;
  const double bound = ref::max2x_bound(exact, plain, ratio, round_of(c.dtype), extra);
  if (!narrow) CHECK_MESSAGE(bound < (name == "out" ? 1e-5 : 1e-4), name, ": bound ", bound);
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
                  const std::vector<double>& plain, double extra_f32,
                  const std::function<std::vector<double>()>& from_out) {
  REQUIRE(actual.size() == exact.size() + static_cast<size_t>(rows.padding * rows.columns));
  const auto own = rows.compared(actual), right = rows.compared(exact);
  check_near(c, name, own, right, rows.compared(plain), extra_f32);
  check_direction(name, own, right, rows.compared(plain),
                  [&] { return rows.compared(from_out()); });
  const bool zero = std::all_of(actual.begin() + static_cast<ptrdiff_t>(exact.size()), actual.end(),
                                [](double value) { return value == 0; });
  CHECK_MESSAGE(zero, name, " is not 0 in the rows behind the last sequence");
}

// [H, rows] if packed, with -inf behind; [B, H, Sq] otherwise.
void check_lse(const AttentionCase& c, const Rows& rows, const std::vector<double>& actual,
               const std::vector<double>& exact) {
  const double allowed = c.dtype == LATHE_F32 ? 1e-6 : 1e-5;
  const auto agree = [allowed](double a, double r) {
    return a == r || (std::isfinite(r) && std::abs(a - r) <= allowed * (1 + std::abs(r)));
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

// Rows that see no key: exact zeros in out and dq.
void check_unseen(const AttentionCase& c, const ref::Attention& in,
                  const ref::AttentionForward& exact, const Outputs& actual) {
  size_t not_zero = 0;
  ref::each_row(in, [&](int64_t, const ref::AttentionRow& row) {
    if (exact.lse[row.lse()] != -ref::kInfinity) return;
    const auto count = [&](const char* name, size_t at, int64_t width) {
      const auto found = actual.find(name);
      for (int64_t i = 0; found != actual.end() && i < width; ++i) {
        not_zero += found->second[at + static_cast<size_t>(i)] != 0;
      }
    };
    count("out", row.out(), in.value_dim), count("dq", row.query(), in.head_dim);
  });
  CHECK((not_zero == 0 || c.poisoned >= 0));
}

// Returns the exact gradients that follow from out as it is: its errors, which have been checked,
// are in delta by definition.
ref::AttentionBackward gradients_of_out(const AttentionCase& c, const ref::Attention& in,
                                        ref::AttentionForward forward, const Outputs& actual) {
  const auto out = actual.find("out");
  for (size_t i = 0; i < forward.out.size(); ++i) {
    forward.out[i] = out != actual.end() ? out->second[i] : round_of(c.dtype)(forward.out[i]);
  }
  return ref::attention_backward(in, forward);
}

// So few elements that a plain computation may have no error by chance: what the errors of out
// cost counts as plain too.
void check_sinks(const AttentionCase& c, const std::vector<double>& actual,
                 const std::vector<double>& exact, std::vector<double> plain,
                 const std::vector<double>& from_out, double extra_f32) {
  for (size_t h = 0; h < exact.size(); ++h) {
    if (std::abs(from_out[h] - exact[h]) > std::abs(plain[h] - exact[h])) plain[h] = from_out[h];
  }
  check_near(c, "dsinks", actual, exact, plain, extra_f32);
}

}  // namespace

void check_attention(const AttentionCase& c, const ref::Attention& in, const Outputs& actual) {
  const ref::Round round = round_of(c.dtype);
  const ref::AttentionForward exact = ref::attention_forward(in);
  const auto queries = [&](int64_t width) {
    return Rows{in.begin_q, c.heads() * width, c.padding_q, c.poisoned};
  };
  const auto keys = [&](int64_t width) {
    return Rows{in.begin_k, c.kv_heads * width, c.padding_k, c.poisoned};
  };
  if (actual.contains("out") && !c.given_forward) {
    const ref::AttentionForward plain = ref::plain_forward(in, round);
    check_tokens(c, "out", queries(c.value_dim), actual.at("out"), exact.out, plain.out, 0,
                 [&] { return exact.out; });
    check_lse(c, queries(1), actual.at("lse"), exact.lse);
    if (c.ones && !c.sinks && c.poisoned < 0) check_ones(actual.at("out"), exact.out);
  }
  check_unseen(c, in, exact, actual);
  if (!c.backward) return;
  using Gradients = ref::AttentionBackward;
  const Gradients right = ref::attention_backward(in, exact);
  const Gradients rough = ref::plain_backward(in, round);
  const auto extra = [&](const char* name) {
    return c.dtype == LATHE_F32 ? extra_of_f32(name, in, exact) : 0.0;
  };
  const auto check = [&](const char* name, const Rows& rows, ref::Array Gradients::*of) {
    if (!c.wants(name)) return;
    check_tokens(c, name, rows, actual.at(name), right.*of, rough.*of, extra(name),
                 [&] { return gradients_of_out(c, in, exact, actual).*of; });
  };
  check("dq", queries(c.head_dim), &Gradients::dq);
  check("dk", keys(c.head_dim), &Gradients::dk);
  check("dv", keys(c.value_dim), &Gradients::dv);
  // A poisoned sequence is part of every sum over sequences.
  if (c.sinks && c.wants("dsinks") && c.poisoned < 0) {
    check_sinks(c, actual.at("dsinks"), right.dsinks, rough.dsinks,
                gradients_of_out(c, in, exact, actual).dsinks, extra("dsinks"));
  }
}

void check_attention(const AttentionCase& c, const ref::Attention& in, const Answer& answer) {
  check_clean(answer);
  if (answer.error.empty()) check_attention(c, in, answer.outputs);
}

Answer checked(const AttentionCase& c, const ref::Attention& inputs) {
  INFO(c.text());
  Answer answer = run_attention(shared_context(), c, inputs);
  check_attention(c, inputs, answer);
  return answer;
}
Answer checked(const AttentionCase& c) { return checked(c, make_inputs(c)); }

bool by_warpgroups() {
  if (!in_family("sm90")) return false;
  lathe_context_info info = {};
  info.size = sizeof(info);
  if (lathe_context_get_info(shared_context(), &info) != LATHE_OK) return false;
  return std::string_view(info.arch) == "sm_90a";
}

}  // namespace apitest
