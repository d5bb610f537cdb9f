// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The tokens of a mod are those that a compiler sees.
#include "codegen/mod_text.h"

#include <doctest/doctest.h>

using namespace lathe;

namespace {

// Returns the tokens, a blank between two; "|" before the first of a line, "!" before those of
// directives.
std::string words(std::string_view text) {
  std::string out;
  const ModTokens read = read_mod(text);
  for (const ModToken& token : read.all) {
    out += (out.empty() ? "" : " ") + std::string(token.first ? "|" : "");
    out += (token.directive ? "!" : "") + token.text;
  }
  return read.problem.empty() ? out : read.problem + " at " + std::to_string(read.line);
}

}  // namespace

TEST_CASE("lines are joined, comments are blanks, digraphs stand for marks") {
  const std::pair<const char*, const char*> cases[] = {
      {"", ""},
      {"a b\nc", "|a b |c"},
      {"a\\\nb\\\r\nc d", "|abc d"},
      {"a/**/b//c\nd", "|a b |d"},
      {"/\\\n/ a\nb/\\\n* c */d", "|b d"},
      {"/* \n */ # /* \n */ if a\nb", "|!# !if !a |b"},
      {"%: a\nb # c", "|!# !a |b # c"},
      {"%:%: # # ## %:# %:%", "|## # # ## # # # %"},
      {"#define a\\\n b\nc", "|!# !define !a !b |c"},
      {"1'000'a 0x1p-3f.5e+x .5a-b 1..2", "|1'000'a 0x1p-3f.5e+x .5a - b 1..2"},
      {"'a' L'\"' u8\"b'\\\"\" c'd'", "|' L ' u8 \" c '"},
      {"a$b_\xc3\xa9 c", "|a$b_\xc3\xa9 c"},
      {"a<%b%>c<:d:>", "|a < % b % > c < : d : >"},
  };
  for (const auto& [text, expected] : cases) {
    CAPTURE(text);
    CHECK(words(text) == expected);
  }
}

TEST_CASE("tokens keep the line of the text that they begin in") {
  const ModTokens read = read_mod("a\\\nb c\\\n\n/*\n\n*/d\ne");
  std::string lines;
  for (const ModToken& token : read.all) lines += std::to_string(token.line) + ' ';
  CHECK(lines == "1 2 6 7 ");
}

TEST_CASE("what is cut off, raw or read in two ways is a problem") {
  const std::pair<const char*, const char*> cases[] = {
      {"a\n'b", "a mod ends each literal in its line, with the quote that begins it at 2"},
      {"\"a\\", "a mod does not end in a backslash at 1"},
      {"\"a\nb\"", "a mod ends each literal in its line, with the quote that begins it at 1"},
      {"a\n/*", "a mod ends the comments that it begins at 2"},
      {"a\nR\"(b)\"", "a mod has no raw strings at 2"},
      {"a \\b", "a mod has a backslash only in literals at 1"},
      {"a\nb // \\\t\n", "a mod has no blanks after a backslash that ends a line at 2"},
  };
  for (const auto& [text, expected] : cases) {
    CAPTURE(text);
    CHECK(words(text) == expected);
  }
}

TEST_CASE("UTF-8 and what is not") {
  for (const char* good :
       {"", "a\nb", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf"}) {
    CHECK(line_that_is_not_utf8(good) == 0);
  }
  for (const char* bad :
       {"\x80", "\xc3", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xed\xa0\x80", "\xf0\x80\x80\x80",
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "\xe2\x82 "}) {
    CHECK(line_that_is_not_utf8("a\n" + std::string(bad) + "\n") == 2);
  }
}
