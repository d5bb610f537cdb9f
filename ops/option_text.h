// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Handles options whose value is a text of the caller, read from a file or given as bytes.
#pragma once

#include <string>

#include "codegen/base/status.h"
#include "ops/problem.h"

namespace lathe {

// Returns whether the value of an option is the name of a file.
bool takes_file(const OptionInfo& option);

// Keeps the text of the file `path` in the problem; INVALID_ARGUMENT names the option, the file and
// what is wrong with it.
Status read_option_text(lathe_problem* problem, const char* option, const std::string& path);

// Keeps `bytes` as the value of an option that has none yet.
Status set_option_text(lathe_problem* problem, const char* option, std::string bytes);

}  // namespace lathe
