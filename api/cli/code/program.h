// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs another program, without a shell, and takes what it prints.
#pragma once

#include <string>
#include <vector>

namespace lathe::cli {

struct ProgramLimits {
  int milliseconds = 60'000;
  size_t bytes = size_t{64} << 20;  // of what it prints, on either output
};

struct ProgramResult {
  std::string out, errors;
  std::string problem;  // why the program did not end well; "" if it did
};

// Runs `file` with these arguments in a process group of its own, with nothing to read. The group
// is killed where it exceeds a limit.
ProgramResult run_program(const std::string& file, const std::vector<std::string>& arguments,
                          const ProgramLimits& limits = {});

}  // namespace lathe::cli
