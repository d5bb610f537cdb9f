// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover balances of a sequence axis: every token once, and as much to do for every
// rank.
#include "collective/plans/balance.h"

#include <doctest/doctest.h>

#include <random>

#include "tests/collective/cases.h"

using namespace lathe;

namespace {

// Keys that a token sees under a causal mask within its document.
int64_t visible(const std::vector<int64_t>& cu, int64_t token) {
  int64_t start = 0;
  for (const int64_t offset : cu) start = offset <= token ? offset : start;
  return token - start + 1;
}

std::vector<int64_t> loads(const ShardLayout& layout, const std::vector<int64_t>& cu) {
  std::vector<int64_t> out;
  for (const auto& rank : layout) {
    out.push_back(0);
    for (const Interval& interval : rank) {
      for (int64_t t = interval.begin; t < interval.end; ++t) out.back() += visible(cu, t);
    }
  }
  return out;
}

ShardLayout layout_of(Balance balance, const std::vector<int64_t>& cu, int world,
                      int64_t block = 1) {
  auto found = shard_layout(balance, cu, world, block);
  REQUIRE_MESSAGE(found.ok(), found.status().text());
  return *found;
}

constexpr Balance kAll[] = {Balance::none, Balance::head_tail, Balance::per_document,
                            Balance::ptrr};

}  // namespace

TEST_CASE("balances: every token on one rank, for 600 draws of documents") {
  std::mt19937 random(1);
  for (int draw = 0; draw < 600; ++draw) {
    const int world = 1 + static_cast<int>(random() % 9);
    const auto cu = cases::random_offsets(random, random() % 90, 1 + random() % 6);
    const int64_t block = 1 + static_cast<int64_t>(random() % 7);
    CAPTURE(cases::words(cu));
    CAPTURE(world);
    for (const Balance balance : kAll) {
      const ShardLayout layout = layout_of(balance, cu, world, block);
      REQUIRE(layout.size() == static_cast<size_t>(world));
      std::vector<int> held(static_cast<size_t>(cu.back()));
      for (const auto& rank : layout) {
        int64_t tokens = 0;
        for (const Interval& interval : rank) {
          tokens += interval.size();
          for (int64_t t = interval.begin; t < interval.end; ++t) ++held.at(t);
        }
        CHECK(total_size(rank) == tokens);
      }
      CHECK(std::count(held.begin(), held.end(), 1) == cu.back());
    }
  }
}

TEST_CASE("balances: where lengths divide, ranks have equally many pairs") {
  std::mt19937 random(2);
  for (int draw = 0; draw < 200; ++draw) {
    const int world = 1 + static_cast<int>(random() % 8);
    std::vector<int64_t> cu = {0};
    for (int n = 1 + static_cast<int>(random() % 4); n > 0; --n) {
      cu.push_back(cu.back() + static_cast<int64_t>(random() % 5) * 2 * world);
    }
    const auto whole = loads(layout_of(Balance::head_tail, {0, cu.back()}, world), {0, cu.back()});
    const auto documents = loads(layout_of(Balance::per_document, cu, world), cu);
    for (const int64_t load : whole) CHECK(load == whole[0]);
    for (const int64_t load : documents) CHECK(load == documents[0]);
  }
}

TEST_CASE("ptrr: costs are the key blocks that some pair needs, and loads are close") {
  std::mt19937 random(3);
  for (int draw = 0; draw < 200; ++draw) {
    const auto cu = cases::random_offsets(random, 1 + random() % 80, 1 + random() % 5);
    const int64_t block = 1 + static_cast<int64_t>(random() % 6);
    const auto costs = causal_block_costs(cu, block);
    for (size_t b = 0; b < costs.size(); ++b) {
      std::vector<bool> needed(costs.size());
      const int64_t begin = static_cast<int64_t>(b) * block;
      for (int64_t t = begin; t < std::min(begin + block, cu.back()); ++t) {
        for (int64_t k = t - visible(cu, t) + 1; k <= t; ++k) needed[k / block] = true;
      }
      REQUIRE(costs[b] == std::count(needed.begin(), needed.end(), true));
    }
    const int world = 1 + static_cast<int>(random() % 5);
    const auto groups = ptrr_groups(costs, world);
    int64_t least = INT64_MAX, most = 0, largest = 0;
    for (const auto& group : groups) {
      int64_t load = 0;
      for (const int64_t b : group) load += costs[b];
      least = std::min(least, load), most = std::max(most, load);
    }
    for (const int64_t cost : costs) largest = std::max(largest, cost);
    CHECK(most - least <= largest);  // rows turn about: what differs is one block at most
  }
}

TEST_CASE("balances: what is no axis is refused, with the numbers") {
  const auto refused = [](const Result<ShardLayout>& found, const char* part) {
    REQUIRE_FALSE(found.ok());
    CHECK_MESSAGE(found.status().text().find(part) != std::string::npos, found.status().text());
  };
  refused(shard_layout(Balance::ptrr, {0, 6}, 2, 0), "block_size is 0");
  refused(shard_layout(Balance::none, {0, 6}, 0, 1), "world_size is 0");
  refused(shard_layout(Balance::none, {0, 6, 4}, 1, 1), "cu_seqlens[2] is 4");
  CHECK_FALSE(balance_of("zigzag").ok());
}

TEST_CASE("balances: a layout of very many intervals is refused, one of very many ranks ends") {
  const auto refused = [](Balance balance, const std::vector<int64_t>& cu, const char* part) {
    const auto found = shard_layout(balance, cu, 1 << 16, 1);
    REQUIRE_FALSE(found.ok());
    CHECK_MESSAGE(found.status().text().find(part) != std::string::npos, found.status().text());
  };
  refused(Balance::ptrr, {0, 2147483647}, "2147483647 blocks; allowed are 16777216");
  std::vector<int64_t> cu = {0};
  for (int n = 0; n < 1000; ++n) cu.push_back(cu.back() + (1 << 21));
  refused(Balance::per_document, cu, "131072000 intervals; allowed are 16777216");
  refused(Balance::none, {0, int64_t{1} << 31}, "2147483648; allowed are 0 to 2147483647");

  // As many documents of a few tokens: the work goes with the tokens, not with the ranks.
  cu = {0};
  for (int n = 0; n < 100000; ++n) cu.push_back(cu.back() + n % 4);
  const auto few = shard_layout(Balance::per_document, cu, 1 << 16, 1);
  REQUIRE(few.ok());
  int64_t tokens = 0;
  for (const auto& rank : *few) tokens += total_size(rank);
  CHECK(tokens == cu.back());
}

TEST_CASE("balances: documents shorter than the ranks' chunks lie where the chunks say") {
  for (const int world : {1, 2, 3, 7, 16}) {
    for (int64_t length = 0; length < 40; ++length) {
      CAPTURE(world);
      CAPTURE(length);
      const ShardLayout layout = layout_of(Balance::per_document, {0, length}, world);
      for (int rank = 0; rank < world; ++rank) {
        std::vector<Interval> expected;
        for (const int64_t part : {int64_t{rank}, int64_t{2} * world - 1 - rank}) {
          const Interval cut = chunk(part, 0, length, int64_t{2} * world);
          if (cut.size() > 0) expected.push_back(cut);
        }
        CHECK(layout[rank] == expected);
      }
    }
  }
}
