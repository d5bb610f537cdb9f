// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A problem as a line of a manifest: one JSON object that holds all that its kernels depend on, the
// texts of mods and the size of a group included. The same text everywhere: what LATHE_RECORD
// writes, what NOT_CACHED says and what `lathe warm` reads.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "api/cache/line_json.h"
#include "api/lathe.h"
#include "codegen/base/status.h"
#include "ops/problem.h"

namespace lathe {

// A line has at most this many bytes: room for three mods of the largest size, every character
// escaped.
inline constexpr size_t kMostLineBytes = 8 << 20;

// Returns the canonical text, ASCII, without a newline.
std::string problem_text(const lathe_problem& problem);

// Makes the problem of a line. The rules of a problem's setters about each field hold here too.
// Opens no file.
Result<std::unique_ptr<lathe_problem>> parse_problem(std::string_view line);
Result<std::unique_ptr<lathe_problem>> parse_problem(const LineJson& line);

// Returns a failure to find kernels with the line of the problem below its first line.
Status with_problem(const Status& status, const lathe_problem& problem);

}  // namespace lathe
