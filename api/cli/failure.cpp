// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Makes failures and the text of messages.
#include "api/cli/failure.h"

#include <algorithm>
#include <string_view>

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
  return '"' + escaped(text, kMost) + '"';
}

}  // namespace lathe::cli
