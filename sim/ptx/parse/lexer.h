// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The lexer splits PTX text into tokens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sim {

struct Token {
  // A `word` is an identifier, a register or a dotted name such as ".reg" or "ld.global.f32" (dots
  // and "::" belong to the word). For `integer`, `real32` and `real64` the bits are in `bits`.
  enum class Kind : uint8_t { word, integer, real32, real64, string, punct, end };
  Kind kind = Kind::end;
  std::string_view text;
  uint64_t bits = 0;
  int line = 0;

  bool is(std::string_view s) const {
    return (kind == Kind::punct || kind == Kind::word) && text == s;
  }
};

// Splits the text. On failure returns false with one sentence in `error`.
bool tokenize(std::string_view text, std::vector<Token>* out, std::string* error);

}  // namespace sim
