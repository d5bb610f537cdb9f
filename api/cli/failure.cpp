// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Failures and the text of messages.
#include "api/cli/failure.h"

#include <algorithm>
#include <string_view>

namespace lathe::cli {
namespace {

ExitCode exit_code_of(lathe_status status) {
  return status == LATHE_INVALID_ARGUMENT || status == LATHE_UNSUPPORTED ? kBadInput : kFailed;
}

// Bytes of the character at `at`: 0 if they are no UTF-8 or a terminal would obey them.
size_t shown_bytes(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const unsigned first = byte(at), second = byte(at + 1);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return 0;
  }
  const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool beyond = (first == 0xed && second >= 0xa0) || (first == 0xf4 && second >= 0x90);
  const bool control = first == 0xc2 && second < 0xa0;
  return overlong || beyond || control ? 0 : length;
}

// Appends one character, or the byte as \xNN, and steps behind it.
void append_shown(std::string_view text, size_t* at, std::string* out) {
  const size_t bytes = shown_bytes(text, *at);
  if (bytes > 0) {
    *out += text.substr(*at, bytes);
  } else {
    constexpr char kDigits[] = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(text[*at]);
    (*out += "\\x") += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  *at += std::max<size_t>(bytes, 1);
}

}  // namespace

void refuse(const std::string& text) { throw Failure(kBadInput, text); }
void fail(const std::string& text) { throw Failure(kFailed, text); }

void check(lathe_status status) {
  if (status == LATHE_OK) return;
  const std::string text = lathe_last_error();
  throw Failure(exit_code_of(status), text.empty() ? lathe_status_name(status) : text);
}

std::string in_quotes(const std::string& text) {
  constexpr size_t kMost = 80;
  std::string out = "\"";
  for (size_t at = 0; at < text.size();) {
    if (at >= kMost) return out + "...\"";
    append_shown(text, &at, &out);
  }
  return out + '"';
}

std::string printable(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '\n' || text[at] == '\t') {
      out += text[at++];
    } else {
      append_shown(text, &at, &out);
    }
  }
  return out;
}

}  // namespace lathe::cli
