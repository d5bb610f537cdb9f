// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Reads files of text that options name.
#pragma once

#include <string>

#include "api/cli/execute.h"

namespace lathe::cli {

// Returns the text of a file. Refuses one that cannot be read, and one with a byte 0.
std::string read_text(const char* option, const std::string& path);

// Reads who holds which tokens: a list that has for each rank the list of its [first, last).
std::vector<Intervals> read_ranges(const char* option, const std::string& path);

}  // namespace lathe::cli
