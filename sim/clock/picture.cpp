// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/clock/picture.h"

#include <algorithm>
#include <set>
#include <utility>

#include "sim/clock/markup.h"
#include "sim/clock/roles.h"

namespace sim::clock {
namespace {

constexpr double kCycles = 4000;  // that the SVG shows
constexpr int kWidth = 1200, kLeft = 130, kRow = 22, kTop = 60, kMostRows = 32;
constexpr int kStallBase = 64;  // of Interval::kind

struct Kind {
  int kind;
  const char* color;
};
constexpr Kind kColors[] = {
    {static_cast<int>(Unit::tensor), "#1b6ca8"},
    {static_cast<int>(Unit::wgmma), "#1b6ca8"},
    {static_cast<int>(Unit::math), "#d1495b"},
    {static_cast<int>(Unit::tma), "#66a182"},
    {kStallBase + static_cast<int>(Stall::long_scoreboard), "#c9b458"},
    {kStallBase + static_cast<int>(Stall::short_scoreboard), "#e5d9a0"},
    {kStallBase + static_cast<int>(Stall::barrier), "#8d6a9f"},
    {kStallBase + static_cast<int>(Stall::mbarrier), "#b79ac8"},
    {kStallBase + static_cast<int>(Stall::async_copy), "#9fc5b0"},
    {kStallBase + static_cast<int>(Stall::wgmma), "#9dc3e0"},
    {kStallBase + static_cast<int>(Stall::math_throttle), "#eba5ae"},
    {kStallBase + static_cast<int>(Stall::tensor_throttle), "#5f97bf"},
    {kStallBase + static_cast<int>(Stall::memory_throttle), "#b8b8b8"},
};

const char* color_of(int kind) {
  for (const Kind& each : kColors) {
    if (each.kind == kind) return each.color;
  }
  return "#dddddd";
}

std::string name_of(int kind) {
  if (kind < kStallBase) return kUnitNames[kind];
  return std::string("waits: ") + kStallNames[kind - kStallBase];
}

// The stretch of time that the SVG shows, and the block.
struct Window {
  double begin = 0, end = 0;
  uint32_t block = 0;
};
Window window_of(const std::vector<Interval>& intervals) {
  Window out;
  double last = 0;
  for (const Interval& each : intervals) last = std::max(last, static_cast<double>(each.end));
  out.begin = std::max(0.0, last / 2 - kCycles / 2);
  out.end = out.begin + std::min(kCycles, last);
  for (const Interval& each : intervals) {
    if (each.begin <= out.begin || each.begin >= out.end) continue;
    out.block = each.block;
    break;
  }
  return out;
}

}  // namespace

std::string picture_svg(const KernelTime& time) {
  const auto& intervals = time.replay.intervals;
  const Window window = window_of(intervals);
  const double scale = (kWidth - kLeft - 10) / std::max(1.0, window.end - window.begin);
  std::string body;
  std::set<int> kinds;
  int rows = 0;
  for (const Interval& each : intervals) {
    if (each.block != window.block || each.warp >= kMostRows) continue;
    if (each.end <= window.begin || each.begin >= window.end) continue;
    rows = std::max(rows, static_cast<int>(each.warp) + 1);
    kinds.insert(each.kind);
    const double from = std::max<double>(each.begin, window.begin);
    const double to = std::min<double>(each.end, window.end);
    const bool waits = each.kind >= kStallBase;
    body += formatted(
        "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\"><title>%s, %.0f to "
        "%.0f</title></rect>\n",
        kLeft + (from - window.begin) * scale,
        kTop + static_cast<int>(each.warp) * kRow + (waits ? 14 : 2),
        std::max(0.3, (to - from) * scale), waits ? 5 : 12, color_of(each.kind),
        name_of(each.kind).c_str(), each.begin, each.end);
  }
  for (const RoleTime& role : find_roles(time.program, time.replay)) {
    for (auto row = static_cast<int>(role.first_warp);
         row < rows && row <= static_cast<int>(role.last_warp); ++row) {
      body += formatted("<text x=\"4\" y=\"%d\">%s, warp %d</text>\n", kTop + row * kRow + 14,
                        role.name.c_str(), row);
    }
  }
  int x = kLeft;
  for (const int kind : kinds) {
    const std::string name = name_of(kind);
    body += formatted(
        "<rect x=\"%d\" y=\"28\" width=\"10\" height=\"10\" fill=\"%s\"/>"
        "<text x=\"%d\" y=\"37\">%s</text>\n",
        x, color_of(kind), x + 14, name.c_str());
    x += 30 + 6 * static_cast<int>(name.size());
  }
  return formatted(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
             "font-family=\"sans-serif\" font-size=\"11\">\n",
             std::max(kWidth, x), kTop + rows * kRow + 10) +
         "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n" +
         formatted("<text x=\"4\" y=\"16\">%s on %s, a block from cycle %.0f to %.0f</text>\n",
                   escaped(time.kernel.substr(0, 200)).c_str(), time.gpu.c_str(), window.begin,
                   window.end) +
         body + "</svg>\n";
}

std::string trace_json(const KernelTime& time) {
  std::string out = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
  std::set<std::pair<uint32_t, uint32_t>>
      rows;  // by block: what a warp does, and what it waits for
  const char* before = "\n";
  for (const Interval& each : time.replay.intervals) {
    // Work and waits of a warp overlap, so they have rows of their own.
    const uint32_t row = 2 * each.warp + (each.kind >= kStallBase ? 1 : 0);
    if (rows.emplace(each.block, row).second) {
      out += formatted(
          "%s{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%u,\"tid\":%u,"
          "\"args\":{\"name\":\"warp %u%s\"}}",
          before, each.block, row, each.warp, row % 2 != 0 ? " waits" : "");
      before = ",\n";
    }
    out += formatted(
        ",\n{\"ph\":\"X\",\"name\":\"%s\",\"pid\":%u,\"tid\":%u,\"ts\":%.1f,\"dur\":%.1f}",
        name_of(each.kind).c_str(), each.block, row, each.begin, each.end - each.begin);
  }
  return out + "\n]}\n";
}

}  // namespace sim::clock
