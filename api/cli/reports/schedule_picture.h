// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Pictures of a ring's schedule, for terminals and as SVG: who computes what when, what is sent.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/cli/reports/report.h"

namespace lathe::cli {

// The area that a rank computes in the square of its rows (downwards) and the owner's keys (to the
// right).
enum class Area { none, all, diagonal, left, bottom };

struct ScheduleCell {
  int rank = 0, step = 0, owner = 0;
  int send_to = -1;  // whom its keys go to beside the step; below 0: nobody
  Area area = Area::none;

  // Returns the work in blocks: a rank's rows times a rank's keys.
  double work() const;
};

struct Schedule {
  int world = 1;
  bool causal = false;
  std::string balance;
  std::vector<ScheduleCell> cells;  // rank by rank

  const ScheduleCell& at(int rank, int step) const { return cells[rank * world + step]; }
  double work(int rank) const;
  // Returns the work of the busiest rank over the mean.
  double imbalance() const;
};

// Makes a schedule of a case of `lathe plan ring_schedule` and its answer.
Schedule read_schedule(const Json& asked, const Json& answer);
// Asks the library for a schedule.
Schedule ring_picture(int world, bool causal, const std::string& balance);

// Returns lines for a terminal; `hop_bytes` 0: unknown.
std::string picture_text(const Schedule& schedule, uint64_t hop_bytes);
// Returns one picture below the other; readable on light and dark grounds.
std::string picture_svg(const std::vector<Schedule>& schedules);

// Writes bytes as "3.0 MB".
std::string bytes_text(double bytes);

}  // namespace lathe::cli
