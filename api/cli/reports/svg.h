// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Shapes and text of the program's SVG pictures. Grounds are left to the reader's page, and ink
// follows its light or dark mode.
#pragma once

#include <cmath>
#include <string>

#include "api/cli/reports/report.h"

namespace lathe::cli {

// Hues a golden angle apart differ for any number; middling light is seen on both grounds.
inline std::string svg_colour(int64_t number) {
  const double hue = std::fmod(210 + 137.508 * static_cast<double>(number), 360);
  return formatted("hsl(%.0f, 62%%, 52%%)", hue);
}

inline std::string svg_text(double x, double y, const std::string& words, const char* type,
                            const char* anchor = "start") {
  return formatted("<text x=\"%g\" y=\"%g\" class=\"%s\" text-anchor=\"%s\">%s</text>\n", x, y,
                   type, anchor, words.c_str());
}

inline std::string svg_rectangle(double x, double y, double width, double height,
                                 const std::string& rest) {
  return formatted("<rect x=\"%g\" y=\"%g\" width=\"%g\" height=\"%g\"%s/>\n", x, y, width, height,
                   rest.c_str());
}

// Puts shapes into a picture of this size.
std::string svg_picture(const char* title, int width, int height, const std::string& body);

}  // namespace lathe::cli
