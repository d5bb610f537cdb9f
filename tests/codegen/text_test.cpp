// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "codegen/base/text.h"

#include <doctest/doctest.h>

#include "codegen/base/letters.h"

namespace {

using namespace lathe;

// As in de_DE: 1234567.5 is 1.234.567,5.
struct Commas : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

TEST_CASE("text: numbers are those of C++ in a program of any locale") {
  const std::locale before = std::locale::global(std::locale(std::locale(), new Commas));
  const std::string found = text("a block of ", 1234567, " threads, ", 0.5, " of them");
  std::locale::global(before);
  CHECK(found == "a block of 1234567 threads, 0.5 of them");
}

TEST_CASE("letters: ASCII alone") {
  for (int code = 0; code < 256; ++code) {
    const char c = static_cast<char>(code);
    const bool upper = code >= 'A' && code <= 'Z', lower = code >= 'a' && code <= 'z';
    const bool digit = code >= '0' && code <= '9';
    CHECK(is_alphanumeric(c) == (upper || lower || digit));
    CHECK(is_digit(c) == digit);
    CHECK(to_lower(c) == (upper ? static_cast<char>(code + 32) : c));
    CHECK(to_upper(c) == (lower ? static_cast<char>(code - 32) : c));
    CHECK(is_space(c) == (code == 32 || (code >= 9 && code <= 13)));
  }
}

}  // namespace
