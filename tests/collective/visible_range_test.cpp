// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover visible pairs against brute force.
#include "collective/plans/visible_range.h"

#include <doctest/doctest.h>

#include <random>

using namespace lathe;

TEST_CASE("pairs: class, shift and count of 4000 random pairs, pair by pair") {
  std::mt19937 random(4);
  for (int draw = 0; draw < 4000; ++draw) {
    const auto any = [&](int64_t below) { return static_cast<int64_t>(random() % below); };
    const Interval q = {any(20), 0}, kv = {any(20), 0};
    const Interval rows = {q.begin, q.begin + any(12)}, keys = {kv.begin, kv.begin + any(12)};
    const int64_t offset = any(21) - 10, left = any(12) - 1, right = any(12) - 1;
    int64_t seen = 0;
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      for (int64_t j = keys.begin; j < keys.end; ++j) {
        const int64_t away = j - (i + offset);
        seen += (left < 0 || away >= -left) && (right < 0 || away <= right) ? 1 : 0;
      }
    }
    const RangeRule rule = range_rule(rows, keys, offset, {left, right});
    CAPTURE(draw);
    CHECK(rule.visible == seen);
    CHECK(rule.shift == rows.begin + offset - keys.begin);
    const bool all = seen == rows.size() * keys.size() && seen > 0;
    CHECK((rule.kind == RangeKind::full) == all);
    if (rule.kind == RangeKind::none) CHECK(seen == 0);
  }
}

TEST_CASE("visible range: the keys of some rows, from the first to the last one that any sees") {
  for (int64_t left = -1; left < 5; ++left) {
    for (int64_t right = -1; right < 5; ++right) {
      for (int64_t begin = 0; begin < 8; ++begin) {
        for (int64_t end = begin + 1; end <= 8; ++end) {
          int64_t first = 8, last = -1;
          for (int64_t row = begin; row < end; ++row) {
            for (int64_t key = 0; key < 8; ++key) {
              if (range_rule({row, row + 1}, {key, key + 1}, 0, {left, right}).visible == 0)
                continue;
              first = std::min(first, key), last = std::max(last, key);
            }
          }
          CHECK(VisibleRange{left, right}.keys({begin, end}, 8) == Interval{first, last + 1});
        }
      }
    }
  }
}
