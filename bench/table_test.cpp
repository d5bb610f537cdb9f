// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/table.h"

#include <doctest/doctest.h>

#include <stdexcept>

TEST_CASE("table: markdown is aligned, CSV is quoted where it must be") {
  bench::Table table({"a", "what"});
  table.add({"1", "x, \"y\""});
  table.add({"12345", ""});
  CHECK(table.markdown() ==
        "| a     | what   |\n|-------|--------|\n| 1     | x, \"y\" |\n| 12345 |        |\n");
  CHECK(table.csv() == "a,what\n1,\"x, \"\"y\"\"\"\n12345,\n");
  CHECK_THROWS_AS(table.add({"1"}), std::logic_error);
}

TEST_CASE("table: the spread of samples") {
  const auto even = bench::spread({5, 1, 3, 2, 4, 11, 7, 9, 10, 8, 6});
  CHECK(even.median == 6);
  CHECK(even.low == 2);
  CHECK(even.high == 10);
  CHECK(bench::spread({3}).high == 3);
  CHECK(bench::spread({}).median == 0);
  CHECK(bench::number(3.14159, 2) == "3.14");
}
