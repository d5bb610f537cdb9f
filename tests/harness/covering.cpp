// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/harness/covering.h"

#include <random>
#include <set>
#include <tuple>

namespace apitest {
namespace {

using Pair = std::tuple<size_t, int, size_t, int>;

std::set<Pair> pairs_of(const Choice& choice) {
  std::set<Pair> pairs;
  for (size_t a = 0; a < choice.size(); ++a) {
    for (size_t b = a + 1; b < choice.size(); ++b) pairs.emplace(a, choice[a], b, choice[b]);
  }
  return pairs;
}

std::set<Pair> all_pairs(const std::vector<int>& values) {
  std::set<Pair> pairs;
  for (size_t a = 0; a < values.size(); ++a) {
    for (size_t b = a + 1; b < values.size(); ++b) {
      for (int i = 0; i < values[a]; ++i) {
        for (int j = 0; j < values[b]; ++j) pairs.emplace(a, i, b, j);
      }
    }
  }
  return pairs;
}

}  // namespace

// Each the best of some that hold a missing pair.
std::vector<Choice> covering_choices(const std::vector<int>& values, uint32_t seed, int draws) {
  std::mt19937 random(seed);
  std::set<Pair> missing = all_pairs(values);
  std::vector<Choice> choices;
  while (!missing.empty()) {
    Choice best;
    size_t most = 0;
    for (int draw = 0; draw < draws; ++draw) {
      Choice choice;
      for (const int count : values) {
        choice.push_back(static_cast<int>(random() % static_cast<uint32_t>(count)));
      }
      const auto& [a, i, b, j] = *missing.begin();
      choice[a] = i, choice[b] = j;
      size_t held = 0;
      for (const Pair& pair : pairs_of(choice)) held += missing.contains(pair);
      if (held > most) most = held, best = choice;
    }
    for (const Pair& pair : pairs_of(best)) missing.erase(pair);
    choices.push_back(best);
  }
  return choices;
}

}  // namespace apitest
