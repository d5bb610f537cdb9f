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

// Refuses the caller's arguments or input: the text names the thing, the value found, the values
// allowed.
[[noreturn]] void refuse(const std::string& text);
// Reports a failure of the device, the compiler or the disk.
[[noreturn]] void fail(const std::string& text);

// Turns a failed call of the library into a Failure with the library's own text.
void check(lathe_status status);

// For messages: in quotes, control characters and what is no UTF-8 escaped, long text cut, so that
// it stays one line.
std::string in_quotes(const std::string& text);

}  // namespace lathe::cli
