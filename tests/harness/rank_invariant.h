// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Ranks for the tests of LATHE_RANK_INVARIANT, whose results must have the same bits.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "tests/harness/check.h"
#include "tests/harness/tables.h"
#include "tests/shard.h"

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

// One pack of kInvariantPacks, with the ranks over which its results must have the same bits: a
// random table for 1, 2, 3, 4 and 8 ranks, and every balance whose bounds are multiples of 64.
struct InvariantPack {
  std::vector<int64_t> cu_seqlens;
  std::vector<Ranks> ranks;
};
constexpr size_t kInvariantPacks = 30;
inline InvariantPack invariant_pack(size_t number) {
  std::mt19937 random(static_cast<uint32_t>(1000 + number));
  InvariantPack out;
  const auto add = [&out](const std::vector<int>& worlds, const std::vector<lathe_balance>& all) {
    for (const int world : worlds) {
      for (const lathe_balance balance : all) {
        out.ranks.push_back(invariant({.world = world, .balance = balance, .block_size = 64}));
      }
    }
  };
  const auto in_blocks = [&](int64_t blocks) {  // of documents that have some, or none
    out.cu_seqlens = {0};
    while (out.cu_seqlens.back() < 64 * blocks) {
      const int64_t next = out.cu_seqlens.back() + 64 * static_cast<int64_t>(random() % 8);
      out.cu_seqlens.push_back(std::min(next, 64 * blocks));
    }
  };
  const std::vector<lathe_balance> by_position = {LATHE_BALANCE_NONE, LATHE_BALANCE_HEAD_TAIL,
                                                  LATHE_BALANCE_PTRR};
  switch (number % 4) {
    case 0:  // any lengths: tables alone
      out.cu_seqlens = random_offsets(random, 100 + static_cast<int64_t>(random() % 700), 400);
      break;
    case 1:
      in_blocks(16);
      add({1, 2, 4, 8}, by_position);
      break;
    case 2:
      out.cu_seqlens = {0, 384, 384, 768};
      add({1, 3}, by_position), add({1, 3}, {LATHE_BALANCE_PER_DOCUMENT});
      break;
    default:
      out.cu_seqlens = {0, 1024};
      add({1, 2, 4, 8}, {LATHE_BALANCE_PER_DOCUMENT});
  }
  const auto tables = random_invariant_ranks(random, out.cu_seqlens);
  out.ranks.insert(out.ranks.end(), tables.begin(), tables.end());
  return out;
}

// Values hold every dtype exactly, so they are equal where the bits are; 0 and -0 are not.
inline size_t bits_that_differ(const Values& one, const Values& other) {
  REQUIRE(one.size() == other.size());
  size_t differ = 0;
  for (size_t i = 0; i < one.size(); ++i) {
    differ += std::memcmp(&one[i], &other[i], sizeof(one[i])) != 0;
  }
  return differ;
}

// Plants what the mode must not do: rounded sums of the ranks that are added up rank by rank, which
// is what is left without LATHE_REDUCE_PARAMETER_GRADS. The comparison must find it.
using RunOver = std::function<Outputs(const Ranks& ranks)>;
inline void check_sum_by_rank_is_found(const RunOver& run, const std::string& name,
                                       const std::vector<int64_t>& cu_seqlens) {
  const Values one = run(invariant({.world = 1})).at(name);
  Ranks ranks = invariant({.world = 4});
  std::mt19937 random(9);
  ranks.ranges = random_table(random, ranks.world, 64, cu_seqlens, 64);
  CHECK(bits_that_differ(run(ranks).at(name), one) == 0);
  ranks.flags &= ~static_cast<unsigned>(LATHE_REDUCE_PARAMETER_GRADS);
  Values planted = run(ranks).at(name);
  for (double& each : planted) each = static_cast<float>(each);
  CHECK_MESSAGE(bits_that_differ(planted, one) > 0, name);
  check_near(planted, one, 1e-5 * std::abs(*std::ranges::max_element(one)), 1e-4, name);
}

inline void check_same_bits(const Outputs& found, const Outputs& expected) {
  CHECK(found.size() == expected.size());
  for (const auto& [name, values] : expected) {
    REQUIRE(found.contains(name));
    const auto& other = found.at(name);
    const size_t differ = bits_that_differ(values, other);
    CHECK_MESSAGE(differ == 0, name << ": " << differ << " of " << values.size() << " differ");
  }
}

}  // namespace apitest
