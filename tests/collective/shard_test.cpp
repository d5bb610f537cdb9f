// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests compare shards with brute force that looks at one token at a time.
#include "collective/plans/shard.h"

#include <doctest/doctest.h>

#include <random>

#include "tests/collective/cases.h"

using namespace lathe;

namespace {

// Returns which interval of the offsets holds the token; empty intervals hold none.
int holder(const std::vector<int64_t>& offsets, int64_t token) {
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    if (offsets[i] <= token && token < offsets[i + 1]) return static_cast<int>(i);
  }
  return -1;
}

void check_context(const PartContext& got, const std::vector<int64_t>& cu, const Partition& cut,
                   int rank) {
  const int64_t begin = cut.bounds[rank], end = cut.bounds[rank + 1];
  std::vector<int64_t> local = {0};
  std::vector<int> ids;
  for (int64_t t = begin; t < end; ++t) {
    const int n = holder(cu, t);
    if (ids.empty() || ids.back() != n) {
      ids.push_back(n);
      local.push_back(local.back());
    }
    ++local.back();
  }
  int first = rank, last = rank;  // outermost parts with a token of the first and last sequence
  int64_t before = 0;
  for (int64_t t = 0; t < cut.length() && !ids.empty(); ++t) {
    const int n = holder(cu, t), p = holder(cut.bounds, t);
    if (n == ids.front() && t < begin) {
      first = std::min(first, p);
      ++before;
    }
    if (n == ids.back()) last = std::max(last, p);
  }
  CHECK(got.part == rank);
  CHECK(got.rank == rank);
  CHECK(got.interval == Interval{begin, end});
  CHECK(got.cu_seqlens == local);
  CHECK(got.seq_ids == ids);
  CHECK(got.pre == rank - first);
  CHECK(got.post == last - rank);
  CHECK(got.is_first == (first == rank));
  CHECK(got.is_last == (last == rank));
  CHECK(got.pre_tokens == before);
}

}  // namespace

TEST_CASE("chunks cover the interval once, in order, and differ by at most one") {
  for (int64_t n = 0; n <= 50; ++n) {
    for (int64_t parts = 1; parts <= 9; ++parts) {
      int64_t at = 7;
      for (int64_t c = 0; c < parts; ++c) {
        const Interval got = chunk(c, 7, n, parts);
        CHECK(got.begin == at);
        CHECK(got.size() >= n / parts);
        CHECK(got.size() <= (n + parts - 1) / parts);
        CHECK(got.begin == 7 + c * n / parts);
        at = got.end;
      }
      CHECK(at == 7 + n);
    }
  }
  CHECK(even_partition(10, 4).bounds == std::vector<int64_t>{0, 2, 5, 7, 10});
  CHECK(even_partition(0, 2).bounds == std::vector<int64_t>{0, 0, 0});
  CHECK(even_partition(2, 5).bounds == std::vector<int64_t>{0, 0, 0, 1, 1, 2});
}

TEST_CASE("a chunk of an axis near the end of 64 bits does not wrap") {
  const int64_t n = INT64_MAX - 1;
  CHECK(chunk(6, 0, n, 7).end == n);
  CHECK(chunk(3, 0, n, 7).begin == n / 7 * 3 + n % 7 * 3 / 7);
}

TEST_CASE("intervals side by side are one") {
  CHECK(joined_intervals({{0, 2}, {2, 2}, {2, 5}, {7, 7}, {6, 8}, {8, 9}}) ==
        std::vector<Interval>{{0, 5}, {6, 9}});
  CHECK(joined_intervals({}).empty());
  CHECK(joined_intervals({{3, 3}}).empty());
}

TEST_CASE("bad offsets are refused by value and rule") {
  struct Bad {
    std::vector<int64_t> offsets;
    const char* says;
  };
  const Bad cases[] = {
      {{}, "empty"},
      {{1, 4}, "[0] is 1, must be 0"},
      {{-1, 4}, "[0] is -1"},
      {{0, 3, 2, 4}, "[2] is 2, must be at least cu_seqlens[1] = 3"},
      {{0, 3}, "[1] is 3, must be the number of tokens, 4"},
      {{0, 3, 5}, "[2] is 5"},
  };
  for (const Bad& bad : cases) {
    const Status status = check_cu_seqlens(bad.offsets, 4);
    CHECK(status.code() == Code::invalid_argument);
    CHECK_MESSAGE(status.text().find(bad.says) != std::string::npos, status.text());
  }
  CHECK(check_cu_seqlens({0, 0, 4, 4}, 4).ok());
  CHECK(check_cu_seqlens({0}, 0).ok());
  CHECK(check_cu_seqlens({0, 9}, -1).ok());
  CHECK(check_partition({0, 0}).ok());
  CHECK(check_partition({0, 3, 3, 9}).ok());
  CHECK(check_partition({}).code() == Code::invalid_argument);
  CHECK(check_partition({0}).code() == Code::invalid_argument);
  CHECK(check_partition({0, 4, 3}).text() == "bounds[2] is 3, must be at least bounds[1] = 4");
  CHECK_FALSE(part_contexts({0, 5}, {{0, 4}}).ok());
  CHECK_FALSE(part_contexts({0, 4}, {{0, 5, 4}}).ok());
}

TEST_CASE("contexts equal brute force on every even cut of small axes") {
  std::mt19937 random(1);
  for (int64_t length = 0; length <= 12; ++length) {
    for (int world = 1; world <= 8; ++world) {
      for (int repeat = 0; repeat < 12; ++repeat) {
        const auto cu = cases::random_offsets(random, length, static_cast<int>(random() % 6) + 1);
        const Partition cut = repeat % 2 ? even_partition(length, world)
                                         : Partition{cases::random_offsets(random, length, world)};
        CAPTURE(cases::words(cu));
        CAPTURE(cases::words(cut.bounds));
        const auto contexts = part_contexts(cu, cut);
        REQUIRE(contexts.ok());
        REQUIRE(contexts->size() == static_cast<size_t>(world));
        for (int rank = 0; rank < world; ++rank) {
          check_context((*contexts)[rank], cu, cut, rank);
        }
      }
    }
  }
}

TEST_CASE("the worked example: three sequences over four ranks") {
  const auto got = part_contexts({0, 6, 20, 32}, even_partition(32, 4));
  REQUIRE(got.ok());
  const PartContext& two = (*got)[2];
  CHECK(two.cu_seqlens == std::vector<int64_t>{0, 4, 8});
  CHECK(two.seq_ids == std::vector<int>{1, 2});
  CHECK(two.pre == 2);
  CHECK(two.post == 1);
  CHECK(two.pre_tokens == 10);
  CHECK_FALSE(two.is_first);
  CHECK_FALSE(two.is_last);
}
