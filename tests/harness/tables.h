// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Draws tables of token ranges, which say who holds which tokens, and counts what runs over them.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "tests/harness/ranks.h"

namespace apitest {

// Checks that no rank has more than `groups` groups of messages. Where a rank has several ranges
// the ranks' estimates say how many launches there are, or more if a rank has no token. Reductions
// over all ranks are no messages.
inline void check_counts(const RanksAnswer& answer, int world, int64_t groups) {
  std::vector<int64_t> found(static_cast<size_t>(world));
  for (const HopCount& hop : answer.hops) {
    found[static_cast<size_t>(hop.rank)] += hop.collectives == 0 ? 1 : 0;
  }
  CHECK(*std::ranges::max_element(found) <= groups);
  const auto several = [](const Intervals& own) { return own.size() > 1; };
  if (std::ranges::none_of(answer.queries, several)) return;
  uint64_t launches = 0;
  for (const lathe_estimate& each : answer.estimates) launches += each.launches;
  const bool empty = std::ranges::any_of(answer.queries, &Intervals::empty);
  CHECK((empty ? launches >= answer.launches : launches == answer.launches));
}

// Draws a table for `world` ranks, some of which may be empty. Ranges have up to `longest` tokens,
// and no fewer than 1; each but the last of a sequence has a multiple of `step`, which counts from
// the starts of sequences (`cu_seqlens`).
inline std::vector<Intervals> random_table(std::mt19937& random, int world, int64_t longest,
                                           const std::vector<int64_t>& cu_seqlens,
                                           int64_t step = 1) {
  const auto below = [&random](int64_t bound) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(bound));
  };
  std::vector<Intervals> out(static_cast<size_t>(world));
  const int64_t used = 1 + below(world);  // ranks from here on hold nothing
  for (size_t n = 0; n + 1 < cu_seqlens.size(); ++n) {
    for (int64_t at = cu_seqlens[n]; at < cu_seqlens[n + 1];) {
      const int64_t tokens = step * (1 + below(std::max<int64_t>(longest / step, 1)));
      const int64_t end = std::min(cu_seqlens[n + 1], at + tokens);
      out[static_cast<size_t>(below(used))].emplace_back(at, end);
      at = end;
    }
  }
  std::ranges::shuffle(out, random);
  return out;
}

// Draws offsets of packed sequences, some of them empty.
inline std::vector<int64_t> random_offsets(std::mt19937& random, int64_t tokens, int64_t longest) {
  std::vector<int64_t> out = {0};
  while (out.back() < tokens) {
    const auto more = static_cast<int64_t>(random() % static_cast<uint64_t>(longest + 1));
    out.push_back(std::min(tokens, out.back() + more));
  }
  return out;
}

// Draws a layout of a capacity: offsets of so many sequences, and a table that no rank has too much
// of. Sometimes there is no token at all, and sometimes a rank is full.
struct DrawnLayout {
  std::vector<int64_t> cu_seqlens;
  Ranks ranks;
};
inline DrawnLayout random_layout(std::mt19937& random, const Ranks& of, int64_t sequences) {
  const auto below = [&random](int64_t bound) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(bound));
  };
  for (int draw = 0; draw < 10000; ++draw) {
    DrawnLayout out{{0}, of};
    const int64_t most = below(of.world * of.capacity_tokens + 1);
    while (std::ssize(out.cu_seqlens) < sequences) out.cu_seqlens.push_back(below(most + 1));
    out.cu_seqlens.push_back(most);
    std::ranges::sort(out.cu_seqlens);
    out.ranks.ranges = random_table(random, of.world, 1 + below(40), out.cu_seqlens);
    bool fits = true;
    for (const Intervals& own : out.ranks.ranges) {
      int64_t tokens = 0;
      for (const auto& [first, last] : own) tokens += last - first;
      // Each range lies in one sequence; empty sequences are pieces, too.
      fits =
          fits && tokens <= of.capacity_tokens && std::ssize(own) + sequences <= of.capacity_pieces;
    }
    if (fits) return out;
  }
  throw std::runtime_error("no table fits the capacity");
}

}  // namespace apitest
