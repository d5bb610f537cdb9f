// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "api/cli/reports/svg.h"

namespace lathe::cli {
namespace {

constexpr const char* kStyle =
    "<style>\n"
    "text { font-family: sans-serif; fill: #1d2733; }\n"
    ".title { font-size: 15px; font-weight: bold; }\n"
    ".word { font-size: 13px; }\n"
    ".small { font-size: 11px; fill: #55606e; }\n"
    ".cell { fill: #8895a7; fill-opacity: 0.14; stroke: #77828f; stroke-width: 1; }\n"
    ".grid { stroke: #77828f; stroke-width: 0.6; stroke-dasharray: 3 3; fill: none; }\n"
    ".arrow { stroke-width: 1.6; fill: none; }\n"
    ".tip { fill: #77828f; }\n"
    "@media (prefers-color-scheme: dark) {\n"
    "  text { fill: #e6ebf2; }\n"
    "  .small { fill: #a9b4c2; }\n"
    "}\n"
    "</style>\n"
    "<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" "
    "markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0 L8 4 L0 8 z\" "
    "class=\"tip\"/></marker></defs>\n";

}  // namespace

std::string svg_picture(const char* title, int width, int height, const std::string& body) {
  return formatted(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
             "viewBox=\"0 0 %d %d\" role=\"img\">\n"
             "<title>%s</title>\n",
             width, height, width, height, title) +
         kStyle + body + "</svg>\n";
}

}  // namespace lathe::cli
