// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The program ends with an exit code; one exception carries a code and a sentence.
#pragma once

#include <stdexcept>
#include <string>

#include "api/lathe.h"
#include "codegen/base/printable.h"
#include "codegen/base/text.h"

namespace lathe::cli {

enum ExitCode { kDone = 0, kFindings = 1, kBadInput = 2, kFailed = 3 };

struct Failure : std::runtime_error {
  Failure(ExitCode exit_code, const std::string& text)
      : std::runtime_error(text), code(exit_code) {}
  ExitCode code;
};

// Refuses the caller's arguments or input: the parts of the text, one after another, name the
// thing, the value found, the values allowed.
template <typename... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  throw Failure(kBadInput, text(parts...));
}
// Reports a failure of the device, the compiler or the disk.
template <typename... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  throw Failure(kFailed, text(parts...));
}

// Turns a failed call of the library into a Failure with the library's own text.
inline void check(lathe_status status) {
  if (status == LATHE_OK) return;
  const std::string text = lathe_last_error();
  const bool refused = status == LATHE_INVALID_ARGUMENT || status == LATHE_UNSUPPORTED;
  throw Failure(refused ? kBadInput : kFailed, text.empty() ? lathe_status_name(status) : text);
}

// For messages: in quotes, control characters and what is no UTF-8 escaped, long text cut, so that
// it stays one line.
inline std::string in_quotes(const std::string& text) {
  constexpr size_t kMost = 80;
  return '"' + escaped(text, kMost) + '"';
}

}  // namespace lathe::cli
