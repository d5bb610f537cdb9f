// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file checks gradients of a reference against differences of its forward.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

namespace ref_test {

// Returns the sum of a[i] * b[i] over all of `b`, of which there may be none.
inline double inner(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(b.begin(), b.end(), a.begin(), 0.0);
}

// Checks that every value of `gradient` is that of loss(problem) by a value of the input, to a
// share of `bound`.
template <class Problem, class Loss>
void check_gradient(const std::string& name, Problem problem, std::vector<double> Problem::*input,
                    const std::vector<double>& gradient, const Loss& loss, double bound = 1e-7) {
  constexpr double kStep = 1e-5;
  std::vector<double>& values = problem.*input;
  INFO(name);
  REQUIRE(values.size() == gradient.size());
  double worst = 0;
  for (size_t i = 0; i < gradient.size(); ++i) {
    const double kept = values[i];
    values[i] = kept + kStep;
    const double above = loss(problem);
    values[i] = kept - kStep;
    const double expected = (above - loss(problem)) / (2 * kStep);
    values[i] = kept;
    const double error = std::abs(gradient[i] - expected) / (1 + std::abs(expected));
    if (!(error <= bound)) FAIL_CHECK(i, ": ", gradient[i], ", by differences ", expected);
    worst = std::max(worst, error);
  }
  CHECK(worst <= bound);
}

}  // namespace ref_test
