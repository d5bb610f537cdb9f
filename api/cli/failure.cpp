// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Failures and the text of messages.
#include "api/cli/failure.h"

#include <cstdio>

namespace lathe::cli {
namespace {

ExitCode exit_code_of(lathe_status status) {
  return status == LATHE_INVALID_ARGUMENT || status == LATHE_UNSUPPORTED ? kBadInput : kFailed;
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
  for (size_t i = 0; i < text.size(); ++i) {
    if (i == kMost) return out + "...\"";
    const auto letter = static_cast<unsigned char>(text[i]);
    if (letter < 0x20 || letter == 0x7f) {
      char buffer[8];
      std::snprintf(buffer, sizeof buffer, "\\x%02x", static_cast<unsigned>(letter));
      out += buffer;
    } else {
      out += text[i];
    }
  }
  return out + '"';
}

}  // namespace lathe::cli
