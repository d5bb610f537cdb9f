// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the messages that a list of row copies becomes.
#include "collective/plans/row_copies.h"

#include <doctest/doctest.h>

using namespace lathe;

TEST_CASE("copies: so many runs between two ranks are one message") {
  RowCopies copies;
  for (int64_t i = 0; i < 100; ++i) copies.push_back({0, 1, 2 * i, 3 * i, 1});
  CHECK(most_between(copies) == 100);
  const RankCopies sender = copies_of_rank(copies, 0, true),
                   receiver = copies_of_rank(copies, 1, true);
  CHECK(sender.sends == std::vector<Piece>{{1, 0, 100}});
  CHECK(sender.send_rows.size() == 100);
  CHECK(receiver.receives == std::vector<Piece>{{0, 0, 100}});
  // A run as it lies needs no list.
  const RankCopies plain = copies_of_rank({{0, 1, 5, 9, 4}, {0, 2, 9, 1, 3}}, 0, true);
  CHECK(plain.sends == std::vector<Piece>{{1, 5, 4}, {2, 9, 3}});
  CHECK(plain.send_rows.empty());
}
