// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover layouts of both axes, and the hops that ranks post.
#include "collective/plans/layout.h"

#include <doctest/doctest.h>

#include <algorithm>

namespace lathe {
namespace {

// Returns how often each position is held, over all ranks.
std::vector<int> coverage(const ShardLayout& layout, int64_t length) {
  std::vector<int> count(length, 0);
  for (const auto& intervals : layout) {
    for (const Interval& each : intervals) {
      for (int64_t t = each.begin; t < each.end; ++t) ++count[t];
    }
  }
  return count;
}

TEST_CASE("every position of either axis lies on one rank, in few runs") {
  for (const Balance balance :
       {Balance::none, Balance::head_tail, Balance::per_document, Balance::ptrr}) {
    for (int world = 1; world <= 5; ++world) {
      LayoutOptions options;
      options.world = world;
      options.balance = balance;
      options.length = 23;
      options.key_length = 31;
      options.cu_seqlens = {0, 0, 9, 10, 23};
      options.cu_seqlens_k = {0, 4, 4, 20, 31};
      options.block_size = 3;
      const auto layout = make_layout(options);
      REQUIRE(layout.status().ok());
      const auto once = [](const std::vector<int>& count) {
        return std::all_of(count.begin(), count.end(), [](int n) { return n == 1; });
      };
      CHECK(once(coverage(layout->queries, 23)));
      CHECK(once(coverage(layout->keys, 31)));
      int64_t held = 0;
      for (int rank = 0; rank < world; ++rank) {
        held += layout->query_tokens(rank);
        const auto& mine = layout->queries[rank];
        for (size_t i = 0; i < mine.size(); ++i) {
          CHECK(mine[i].size() > 0);
          if (i > 0) CHECK(mine[i].begin != mine[i - 1].end);
        }
      }
      CHECK(held == 23);
    }
  }
}

TEST_CASE("one rank holds the whole axis in one run") {
  LayoutOptions options;
  options.balance = Balance::per_document;
  options.length = 12;
  options.cu_seqlens = {0, 5, 12};
  const auto layout = make_layout(options);
  REQUIRE(layout.status().ok());
  CHECK(layout->queries == ShardLayout{{{0, 12}}});
  CHECK(layout->key_length == 12);
  CHECK(layout->cu_seqlens_k == options.cu_seqlens);
}

TEST_CASE("a table of ranges is taken as it is, or refused with the token") {
  const auto made = [](const ShardLayout& ranges, int64_t length) {
    LayoutOptions options;
    options.world = static_cast<int>(ranges.size());
    options.length = length, options.ranges = ranges;
    return make_layout(options);
  };
  const auto refused = [&](const ShardLayout& ranges, const std::string& why) {
    INFO(why);
    const auto layout = made(ranges, 10);
    REQUIRE_FALSE(layout.status().ok());
    CHECK(layout.status().text().find(why) != std::string::npos);
  };
  const auto layout = made({{{0, 2}, {2, 3}, {7, 7}, {8, 10}}, {}, {{3, 8}}}, 10);
  REQUIRE(layout.status().ok());
  CHECK(layout->queries == ShardLayout{{{0, 3}, {8, 10}}, {}, {{3, 8}}});
  CHECK(layout->keys == layout->queries);
  CHECK_FALSE(layout->contiguous());
  // Parts that follow each other are the same layout as bounds.
  const auto parts = made({{}, {{0, 4}}, {{5, 5}}, {{4, 10}}}, 10);
  REQUIRE(parts.status().ok());
  CHECK(parts->partition.bounds == std::vector<int64_t>{0, 0, 4, 4, 10});
  CHECK(made({{}, {}}, 0)->contiguous());
  refused({{{0, 4}}, {{5, 10}}}, "token 4 lies in no range");
  refused({{{1, 10}}, {}}, "token 0 lies in no range");
  refused({{{0, 5}}, {{5, 9}}}, "token 9 lies in no range");
  refused({{{0, 5}}, {{3, 10}}}, "token 3 lies in ranges of rank 0 and of rank 1");
  refused({{{0, 5}, {4, 10}}, {}}, "range 1 of rank 0 is [4, 10), which begins before token 5");
  refused({{{5, 10}, {0, 5}}, {}}, "range 1 of rank 0 is [0, 5), which begins before token 10");
  refused({{{0, 11}}, {}}, "range 0 of rank 0 is [0, 11)");
  refused({{{0, 5}}, {{5, 10}, {7, 6}}}, "range 1 of rank 1 is [7, 6)");
  LayoutOptions options;
  options.world = 2, options.length = 10, options.ranges = {{{0, 10}}, {}};
  options.balance = Balance::ptrr;
  CHECK(make_layout(options).status().text().find("need balance none") != std::string::npos);
  options.balance = Balance::none, options.bounds = {0, 5, 10};
  CHECK(make_layout(options).status().text().find("allowed is one") != std::string::npos);
  options.bounds = {}, options.world = 3;
  CHECK(make_layout(options).status().text().find("has lists for 2 ranks") != std::string::npos);
}

TEST_CASE("what is no layout is refused with the value") {
  const auto refusal = [](const LayoutOptions& options) {
    const auto layout = make_layout(options);
    return layout.status().ok() ? std::string() : layout.status().text();
  };
  LayoutOptions good;
  good.world = 2;
  good.length = 8;
  CHECK(refusal(good).empty());
  LayoutOptions bad = good;
  bad.cu_seqlens = {0, 9};
  CHECK(refusal(bad).find("is 9") != std::string::npos);
  bad = good;
  bad.cu_seqlens = {0, 4, 8};
  bad.cu_seqlens_k = {0, 8};
  CHECK(refusal(bad).find("1; they must have as many") != std::string::npos);
  bad = good;
  bad.balance = Balance::head_tail;
  bad.bounds = {0, 3, 8};
  CHECK(refusal(bad).find("need balance none") != std::string::npos);
  bad = good;
  bad.length = -1;
  CHECK(refusal(bad).find("-1") != std::string::npos);
}

}  // namespace
}  // namespace lathe
