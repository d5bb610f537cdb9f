// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Pictures of a replay: a row for each warp of a block, what it kept busy above what it waited for.
#pragma once

#include <string>

#include "sim/clock/kernel_time.h"

namespace sim::clock {

// Both need KernelTime::replay.intervals, which ReplayOptions::intervals asks for. The SVG shows
// some thousand cycles from the middle of what was recorded; the trace, which chrome://tracing and
// Perfetto read, has all of it. A cycle is a microsecond there.
std::string picture_svg(const KernelTime& time);
std::string trace_json(const KernelTime& time);

}  // namespace sim::clock
