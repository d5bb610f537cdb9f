// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "codegen/base/nearest_name.h"

#include <algorithm>
#include <vector>

namespace lathe {
namespace {

constexpr size_t kLongest = 64;  // no name is longer; a hostile one costs no time

// Computes Levenshtein's distance, one row of its table at a time. Two letters that changed places
// count as two replacements.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string_view nearest_name(std::string_view asked, std::span<const std::string_view> names) {
  if (asked.size() > kLongest) return {};
  std::string_view found;
  size_t least = std::max<size_t>(asked.size() / 3, 1) + 1;
  for (const std::string_view name : names) {
    const size_t away = distance(asked, name);
    if (away >= least || away >= asked.size()) continue;
    least = away;
    found = name;
  }
  return found;
}

std::string did_you_mean(std::string_view asked, std::span<const std::string_view> names) {
  const std::string_view found = nearest_name(asked, names);
  return found.empty() ? "" : "; did you mean '" + std::string(found) + "'?";
}

}  // namespace lathe
