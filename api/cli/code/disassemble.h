// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The machine code of a plan's kernels, as nvdisasm writes it.
#pragma once

#include <string>

#include "api/lathe.h"

namespace lathe::cli {

// Returns nvdisasm's file. Refuses, with the remedy, if there is none.
std::string disassembler();

// Returns the listing of a kernel, and behind it counts and what ptxas remarked, in comments.
std::string machine_code(const std::string& disassembler, const lathe_plan* plan, size_t kernel);

}  // namespace lathe::cli
