// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file draws random cuts of a token axis, many of them empty, and prints them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "collective/plans/shard.h"

namespace cases {

// Returns offsets 0 <= ... <= length of `parts` intervals; half of the cuts repeat another one or
// an end.
inline std::vector<int64_t> random_offsets(std::mt19937& random, int64_t length, int parts) {
  std::vector<int64_t> out = {0, length};
  while (out.size() < static_cast<size_t>(parts) + 1) {
    const bool repeat = random() % 4 == 0;
    const int64_t any = static_cast<int64_t>(random() % static_cast<uint64_t>(length + 1));
    out.push_back(repeat ? out[random() % out.size()] : any);
  }
  std::sort(out.begin(), out.end());
  return out;
}

// Returns the tokens of a rank's buffer.
inline std::vector<int64_t> tokens_of(const std::vector<lathe::Interval>& intervals) {
  std::vector<int64_t> out;
  for (const lathe::Interval& each : intervals) {
    for (int64_t t = each.begin; t < each.end; ++t) out.push_back(t);
  }
  return out;
}

inline std::string words(const std::vector<int64_t>& values) {
  std::ostringstream out;
  for (const int64_t value : values) out << value << ' ';
  return out.str();
}

}  // namespace cases
