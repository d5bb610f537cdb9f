// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Helpers for pictures: text by a format, and text inside SVG.
#pragma once

#include <string>

namespace sim::clock {

// Formats as printf does; the result is cut after 1023 letters.
[[gnu::format(printf, 1, 2)]] std::string formatted(const char* format, ...);
// Replaces the letters that have a meaning in SVG.
std::string escaped(const std::string& text);

}  // namespace sim::clock
