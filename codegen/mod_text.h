// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The tokens of a mod, as a compiler sees them after translation phases 1 to 3: lines that end
// in a backslash are joined first, comments are blanks, and a digraph is what it stands for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lathe {

struct ModToken {
  enum class Kind { word, number, literal, mark };
  Kind kind = Kind::mark;
  std::string text;        // a mark is one character, or "##"; of a literal only its quote
  int line = 1;            // of the caller's text
  bool first = false;      // of its line
  bool directive = false;  // in a line that begins with #
};

struct ModTokens {
  std::vector<ModToken> all;
  // Says why nobody can be sure of the tokens after `line`; empty: they are all there.
  std::string problem;
  int line = 0;
};

// Time and memory are linear in the text. `subject`: what `problem` calls the text.
ModTokens read_mod(std::string_view text, const char* subject = "a mod");

// The line of the first byte that is no UTF-8; 0 if all are.
int line_that_is_not_utf8(std::string_view text);

}  // namespace lathe
