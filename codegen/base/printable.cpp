// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "codegen/base/printable.h"

#include <algorithm>

#include "codegen/base/hex.h"

namespace lathe {
namespace {

// Bytes of the character at `at`: 0 if they are no UTF-8 or a terminal would obey them.
size_t shown_bytes(std::string_view text, size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0x20 || first == 0x7f) return 0;
  const size_t bytes = utf8_bytes(text, at);
  const bool control =
      bytes == 2 && first == 0xc2 && static_cast<unsigned char>(text[at + 1]) < 0xa0;
  return control ? 0 : bytes;
}

// Appends one character, or the byte as \xNN, and steps behind it.
void append_shown(std::string_view text, size_t* at, std::string* out) {
  const size_t bytes = shown_bytes(text, *at);
  *out += bytes > 0 ? std::string(text.substr(*at, bytes)) : "\\x" + hex_of(text.substr(*at, 1));
  *at += std::max<size_t>(bytes, 1);
}

}  // namespace

size_t utf8_bytes(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const unsigned first = byte(at), second = byte(at + 1);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return 0;
  }
  const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool beyond = (first == 0xed && second >= 0xa0) || (first == 0xf4 && second >= 0x90);
  return overlong || beyond ? 0 : length;
}

std::string escaped(std::string_view text, size_t most) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (at >= most) return out + "...";
    append_shown(text, &at, &out);
  }
  return out;
}

std::string in_quotes(std::string_view text) { return "'" + escaped(text) + "'"; }

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '\n' || text[at] == '\t') {
      out += text[at++];
    } else {
      append_shown(text, &at, &out);
    }
  }
  return out;
}

}  // namespace lathe
