// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Ranks for the tests of LATHE_RANK_INVARIANT, whose results must have the same bits.
#pragma once

#include <doctest/doctest.h>

#include <cstring>

#include "tests/harness/tables.h"

namespace apitest {

inline Ranks invariant(Ranks ranks) {
  ranks.flags = LATHE_RANK_INVARIANT | LATHE_REDUCE_PARAMETER_GRADS;
  return ranks;
}

// Returns tables of ranges for 1, 2, 3, 4 and 8 ranks, whose bounds are multiples of 64 tokens of
// the sequences.
inline std::vector<Ranks> random_invariant_ranks(std::mt19937& random,
                                                 const std::vector<int64_t>& cu_seqlens) {
  std::vector<Ranks> out;
  for (const int world : {1, 2, 3, 4, 8}) {
    const auto most = static_cast<int64_t>(64 + random() % 300);
    Ranks& ranks = out.emplace_back(invariant({.world = world}));
    ranks.ranges = random_table(random, world, most, cu_seqlens, 64);
  }
  return out;
}

// Returns every balance over 1, 2 and 4 ranks, for sequences of multiples of 512 tokens.
inline std::vector<Ranks> balanced_invariant_ranks() {
  std::vector<Ranks> out;
  for (const int world : {1, 2, 4}) {
    for (const auto balance : {LATHE_BALANCE_NONE, LATHE_BALANCE_HEAD_TAIL,
                               LATHE_BALANCE_PER_DOCUMENT, LATHE_BALANCE_PTRR}) {
      out.push_back(invariant({.world = world, .balance = balance, .block_size = 64}));
    }
  }
  return out;
}

// Values hold every dtype exactly, so they are equal where the bits are; 0 and -0 are not.
inline void check_same_bits(const Outputs& found, const Outputs& expected) {
  CHECK(found.size() == expected.size());
  for (const auto& [name, values] : expected) {
    REQUIRE(found.contains(name));
    const auto& other = found.at(name);
    REQUIRE(other.size() == values.size());
    size_t differ = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      differ += std::memcmp(&values[i], &other[i], sizeof(values[i])) != 0;
    }
    CHECK_MESSAGE(differ == 0, name << ": " << differ << " of " << values.size() << " differ");
  }
}

}  // namespace apitest
