// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/compare.h"

#include <doctest/doctest.h>

using compare::Rule;

namespace {

const double kNan = std::nan("");
const double kInf = std::numeric_limits<double>::infinity();

bool passes(const std::vector<double>& actual, const std::vector<double>& expected, Rule rule) {
  return compare::compare("t", actual, expected, {static_cast<int64_t>(expected.size())}, rule).ok;
}

TEST_CASE("compare: inf and nan only where the reference has them") {
  for (auto kind : {Rule::kRms, Rule::kMax2x, Rule::kExact}) {
    const Rule rule{kind, 1e9, 1e9};
    CHECK(passes({1, kInf, -kInf, kNan}, {1, kInf, -kInf, kNan}, rule));
    CHECK_FALSE(passes({1, 2}, {1, kInf}, rule));
    CHECK_FALSE(passes({1, kInf}, {1, 2}, rule));
    CHECK_FALSE(passes({1, kNan}, {1, 2}, rule));
    CHECK_FALSE(passes({1, -kInf}, {1, kInf}, rule));
    CHECK_FALSE(passes({1, kNan}, {1, kInf}, rule));
    CHECK_FALSE(passes({1}, {1, 1}, rule));
    CHECK(passes({}, {}, rule));
  }
}

TEST_CASE("compare: each rule at its bound") {
  // rms of (0, 1) over rms of (3, 4): sqrt(1/2) / sqrt(25/2) = 0.2
  CHECK(passes({3, 5}, {3, 4}, {Rule::kRms, 0.2001, 0}));
  CHECK_FALSE(passes({3, 5}, {3, 4}, {Rule::kRms, 0.1999, 0}));
  CHECK(passes({3, 5}, {3, 4}, {Rule::kRms, 0.1, 1}));
  CHECK_FALSE(passes({1e-9}, {0}, {Rule::kRms, 0.1, 0}));
  CHECK(passes({0}, {0}, {Rule::kRms, 0.1, 0}));
  CHECK(passes({3, 5}, {3, 4}, {Rule::kMax2x, 1, 0}));
  CHECK_FALSE(passes({3, 5}, {3, 4}, {Rule::kMax2x, 0.999, 0}));
  CHECK_FALSE(passes({3, 5}, {3, 4}, {Rule::kExact, 100, 100}));
}

TEST_CASE("compare: a failure names the worst position and the share that passes") {
  const auto verdict = compare::compare("dx", {1, 1, 1, 9, 1, 1, 1, 3}, {1, 1, 1, 1, 1, 1, 1, 1},
                                        {2, 2, 2}, {Rule::kMax2x, 0.5, 0});
  CHECK_FALSE(verdict.ok);
  CHECK(verdict.value == 8);
  CHECK(verdict.text == "dx: 8, bound 0.5; worst 9 at [0, 1, 1], expected 1; 75 % pass");
}

}  // namespace
