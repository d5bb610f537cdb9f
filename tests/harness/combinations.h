// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file makes combinations of an operator's options from a fixed seed: groups of cases that
// share kernels, and the runs of a process's share of them.
#pragma once

#include <doctest/doctest.h>

#include <iterator>
#include <random>
#include <set>

#include "tests/harness/call.h"
#include "tests/harness/covering.h"
#include "tests/shard.h"

namespace apitest {

template <class Case>
using Groups = std::vector<std::vector<Case>>;

// A maker of cases takes its random values from Draws.
class Draws {
 public:
  explicit Draws(uint32_t seed) : random_(seed) {}

 protected:
  template <typename List>
  auto pick(const List& list) {
    return *(std::begin(list) + static_cast<ptrdiff_t>(random_() % std::size(list)));
  }
  bool now_and_then(uint32_t every) { return random_() % every == 0; }

  std::mt19937 random_;
};

// Returns the cases one(0), one(1) and so on.
template <class One>
auto cases_of(size_t count, const One& one) {
  std::vector<decltype(one(count))> cases;
  for (size_t i = 0; i < count; ++i) cases.push_back(one(i));
  return cases;
}

// Makes a group of each choice of values; together the choices hold every pair of values.
template <class Maker>
auto groups_of(Maker maker, const std::vector<int>& values, uint32_t seed, int draws = 200) {
  std::vector<decltype(maker.group(Choice()))> groups;
  for (const Choice& choice : covering_choices(values, seed, draws)) {
    groups.push_back(maker.group(choice));
  }
  return groups;
}

template <class Case>
size_t count_cases(const Groups<Case>& groups) {
  size_t cases = 0;
  for (const auto& group : groups) cases += group.size();
  return cases;
}

// Runs and checks the chosen share of the groups, or the first of `shares`. `run` is given a case,
// its group's number and how many cases were run with it, and returns the call's
// kernels, or none.
template <class Case, class Run>
void run_combinations(const Groups<Case>& groups, unsigned shares, const Run& run) {
  const testing::Shard shard = testing::chosen_shard(shares);
  size_t cases = 0;
  std::set<std::string> kernels;
  for (size_t g = shard.index; g < groups.size(); g += shard.count) {
    for (const Case& each : groups[g]) {
      INFO(each.text());
      ++cases;
      try {
        for (const Kernel& kernel : run(each, g, cases)) kernels.insert(kernel.spec);
      } catch (const std::exception& error) {
        FAIL_CHECK(error.what());
      }
    }
  }
  const std::string in =
      kernels.empty() ? "" : " in " + std::to_string(kernels.size()) + " kernels";
  MESSAGE("part ", shard.index, " of ", shard.count, ": ", cases, " combinations", in);
}

}  // namespace apitest
