// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A schedule as SVG: a square for each rank and step, filled where the rank computes, in the colour
// of the keys' owner; lines take each block to the rank that has it next. Nothing but shapes and
// text; grounds are left to the reader's page, and ink follows its light or dark mode.
#include <algorithm>

#include "api/cli/reports/schedule_picture.h"
#include "api/cli/reports/svg.h"

namespace lathe::cli {
namespace {

constexpr int kSide = 48, kAcross = 104, kDown = 76, kLeft = 86, kTop = 66;

int left_of(int step) { return kLeft + step * kAcross; }

// The part that is computed: rows downwards, keys to the right.
std::string filled(const ScheduleCell& cell, double x, double y) {
  if (cell.area == Area::none) return "";
  const std::string fill = " fill=\"" + svg_colour(cell.owner) + "\"";
  if (cell.area == Area::diagonal) {
    return formatted("<path d=\"M%g %g v%d h%d z\"%s/>\n", x, y, kSide, kSide, fill.c_str());
  }
  const double half = kSide / 2.0;
  const bool bottom = cell.area == Area::bottom;
  return svg_rectangle(x, y + (bottom ? half : 0), cell.area == Area::left ? half : kSide,
                       bottom ? half : kSide, fill);
}

std::string arrow(const ScheduleCell& cell, double top) {
  if (cell.send_to < 0) return "";
  const double x = left_of(cell.step) + kSide, y = top + cell.rank * kDown + kSide / 2.0;
  const double to_x = left_of(cell.step + 1) - 6, to_y = top + cell.send_to * kDown + kSide / 2.0;
  return formatted(
      "<path d=\"M%g %g C%g %g %g %g %g %g\" class=\"arrow\" stroke=\"%s\" "
      "marker-end=\"url(#tip)\"/>\n",
      x + 3, y, x + 34, y, to_x - 34, to_y, to_x, to_y, svg_colour(cell.owner).c_str());
}

std::string cell_svg(const Schedule& schedule, const ScheduleCell& cell, double top) {
  const double x = left_of(cell.step), y = top + cell.rank * kDown;
  std::string out = formatted("<g>\n<title>rank %d, step %d: keys of rank %d</title>\n", cell.rank,
                              cell.step, cell.owner);
  out += svg_rectangle(x, y, kSide, kSide, " class=\"cell\"");
  out += filled(cell, x, y);
  if (schedule.balance == "head_tail") {
    const double half = kSide / 2.0;
    out += formatted("<path d=\"M%g %g v%d M%g %g h%d\" class=\"grid\"/>\n", x + half, y, kSide, x,
                     y + half, kSide);
  }
  out += svg_text(x + kSide / 2.0, y + kSide + 13, text("keys ", cell.owner), "small", "middle");
  return out + "</g>\n";
}

std::string one(const Schedule& schedule, double top) {
  std::string out =
      svg_text(12, top - 46,
               text("ring of ", schedule.world, schedule.causal ? ", causal, " : ", not causal, ",
                    schedule.balance),
               "title");
  out += svg_text(
      12, top - 30,
      formatted("the busiest rank has %.1f %% of the mean work", 100 * schedule.imbalance()),
      "small");
  for (int step = 0; step < schedule.world; ++step) {
    out += svg_text(left_of(step) + kSide / 2.0, top - 12, text("step ", step), "word", "middle");
  }
  for (int rank = 0; rank < schedule.world; ++rank) {
    const double y = top + rank * kDown;
    out += svg_text(12, y + kSide / 2.0 - 2, text("rank ", rank), "word");
    out += svg_text(12, y + kSide / 2.0 + 14, formatted("work %.1f", schedule.work(rank)), "small");
  }
  for (const ScheduleCell& cell : schedule.cells) out += arrow(cell, top);
  for (const ScheduleCell& cell : schedule.cells) out += cell_svg(schedule, cell, top);
  return out;
}

}  // namespace

std::string picture_svg(const std::vector<Schedule>& schedules) {
  std::string body;
  double top = 0;
  int widest = 4;
  for (const Schedule& schedule : schedules) {
    body += one(schedule, top + kTop);
    top += kTop + schedule.world * kDown + 12;
    widest = std::max(widest, schedule.world);
  }
  body +=
      svg_text(12, top + 8,
               "rows downwards, keys to the right; lines: blocks sent on beside the step", "small");
  const int width = kLeft + widest * kAcross, height = static_cast<int>(top) + 24;
  return svg_picture("Ring attention: who computes what when", width, height, body);
}

}  // namespace lathe::cli
