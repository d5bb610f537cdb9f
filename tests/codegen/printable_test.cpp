// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover text from outside: what a terminal would obey is escaped, letters of any
// language are not.
#include "codegen/base/printable.h"

#include <doctest/doctest.h>

using namespace lathe;

TEST_CASE("control characters and broken UTF-8 are escaped, letters stay") {
  const struct {
    std::string given, shown;
  } cases[] = {
      {"x", "x"},
      {"", ""},
      {"\x1b[31mred", "\\x1b[31mred"},
      {std::string("a\0b", 3), "a\\x00b"},
      {"\x7f\r\b", "\\x7f\\x0d\\x08"},
      {"gr\u00fc\u00df \u4e2d \U0001f600", "gr\u00fc\u00df \u4e2d \U0001f600"},
      {"\xc2\x9b"
       "31m",
       "\\xc2\\x9b31m"},                             // CSI as a terminal in UTF-8 reads it
      {"\x9b", "\\x9b"},                             // and in eight bits
      {"\xff\xc0\xaf", "\\xff\\xc0\\xaf"},           // no UTF-8; overlong
      {"\xed\xa0\x80", "\\xed\\xa0\\x80"},           // half of a surrogate pair
      {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},  // beyond the last letter
      {"\xe4\xb8", "\\xe4\\xb8"},                    // cut
  };
  for (const auto& each : cases) {
    CAPTURE(each.given);
    CHECK(escaped(each.given) == each.shown);
    CHECK(in_quotes(each.given) == "'" + each.shown + "'");
    CHECK(printable(each.given) == each.shown);
  }
}

TEST_CASE("names are one line and short, messages keep their lines") {
  CHECK(escaped("a\n\tb") == "a\\x0a\\x09b");
  CHECK(printable("a\n\tb") == "a\n\tb");
  CHECK(escaped(std::string(1000, 'x')) == std::string(100, 'x') + "...");
  CHECK(printable(std::string(1000, 'x')) == std::string(1000, 'x'));
}
