// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Compares an output with its reference in three steps: where inf and nan stand, then the rule,
// then, if it failed, the worst position and the share of elements that pass.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

namespace compare {

struct Rule {
  // rms: sqrt(mean((a-r)^2)) / sqrt(mean(r^2)) < bound, or max|a-r| <= atol.
  // max2x: max|a-r| <= bound. exact: every value equal, nan equal to nan.
  enum Kind { kRms, kMax2x, kExact } kind = kRms;
  double bound = 0;
  double atol = 0;
};

struct Verdict {
  bool ok = false;
  double value = 0;  // what the bound is for
  std::string text;  // for a person, whatever the verdict
};

// Returns text such as "[1, 3, 0]" for a flat index.
inline std::string position(size_t flat, const std::vector<int64_t>& shape) {
  std::string text;
  for (size_t i = shape.size(); i-- > 0;) {
    const size_t extent = static_cast<size_t>(shape[i]);
    text = std::to_string(flat % extent) + (text.empty() ? "" : ", ") + text;
    flat /= extent;
  }
  return "[" + text + "]";
}

inline bool same(double a, double r) { return a == r || (std::isnan(a) && std::isnan(r)); }

inline std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

namespace detail {

struct Sums {
  double error = 0, norm = 0, largest = 0, worst = -1;
  size_t worst_at = 0, finite = 0, equal = 0;
};

inline Sums add_up(const std::vector<double>& actual, const std::vector<double>& expected) {
  Sums sums;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (same(actual[i], expected[i])) ++sums.equal;
    if (!std::isfinite(expected[i])) continue;
    const double difference = std::abs(actual[i] - expected[i]);
    sums.error += difference * difference;
    sums.norm += expected[i] * expected[i];
    if (difference > sums.worst) {
      sums.worst = difference;
      sums.worst_at = i;
    }
    ++sums.finite;
  }
  if (sums.worst > 0) sums.largest = sums.worst;
  return sums;
}

// Returns the share of elements that would pass alone: within the bound times the reference's rms
// (or size, or exactly).
inline double pass_share(const std::vector<double>& actual, const std::vector<double>& expected,
                         const Rule& rule, const Sums& sums) {
  if (expected.empty()) return 1;
  const double norm = sums.finite ? std::sqrt(sums.norm / static_cast<double>(sums.finite)) : 0;
  const double allowed =
      rule.kind == Rule::kRms ? std::max(rule.bound * norm, rule.atol) : rule.bound;
  size_t passed = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    passed += same(actual[i], expected[i]) ||
              (rule.kind != Rule::kExact && std::abs(actual[i] - expected[i]) <= allowed);
  }
  return static_cast<double>(passed) / static_cast<double>(expected.size());
}

}  // namespace detail

inline Verdict compare(const std::string& name, const std::vector<double>& actual,
                       const std::vector<double>& expected, const std::vector<int64_t>& shape,
                       const Rule& rule) {
  Verdict verdict;
  if (actual.size() != expected.size()) {
    verdict.text = name + ": " + std::to_string(actual.size()) + " values, expected " +
                   std::to_string(expected.size());
    return verdict;
  }
  // A difference in an exact comparison covers inf and nan as well, with a position of its own.
  for (size_t i = 0; i < expected.size(); ++i) {
    const bool misplaced = rule.kind == Rule::kExact
                               ? !same(actual[i], expected[i])
                               : std::isfinite(actual[i]) != std::isfinite(expected[i]) ||
                                     (!std::isfinite(expected[i]) && !same(actual[i], expected[i]));
    if (!misplaced) continue;
    const auto sums = detail::add_up(actual, expected);
    verdict.text = name + ": " + number(actual[i]) + " at " + position(i, shape) + ", expected " +
                   number(expected[i]) + "; " +
                   number(100 * detail::pass_share(actual, expected, rule, sums)) + " % pass";
    return verdict;
  }
  const auto sums = detail::add_up(actual, expected);
  const double count = static_cast<double>(sums.finite);
  const double error = sums.finite ? std::sqrt(sums.error / count) : 0;
  const double norm = sums.finite ? std::sqrt(sums.norm / count) : 0;
  switch (rule.kind) {
    case Rule::kExact:
      verdict.ok = true;
      break;
    case Rule::kMax2x:
      verdict.value = sums.largest;
      verdict.ok = verdict.value <= rule.bound;
      break;
    case Rule::kRms:
      verdict.value =
          norm > 0 ? error / norm : (error > 0 ? std::numeric_limits<double>::infinity() : 0);
      verdict.ok = verdict.value < rule.bound || sums.largest <= rule.atol;
      break;
  }
  verdict.text = name + ": " + number(verdict.value) + ", bound " + number(rule.bound);
  if (!verdict.ok && sums.finite) {
    verdict.text += "; worst " + number(actual[sums.worst_at]) + " at " +
                    position(sums.worst_at, shape) + ", expected " +
                    number(expected[sums.worst_at]) + "; " +
                    number(100 * detail::pass_share(actual, expected, rule, sums)) + " % pass";
  }
  return verdict;
}

}  // namespace compare
