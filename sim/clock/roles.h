// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Roles of a block: warps that run the same instructions, named by what they do, and how long a
// round of their main loop takes.
#pragma once

#include <string>
#include <vector>

#include "sim/clock/engine.h"

namespace sim::clock {

struct RoleTime {
  // "producer": copies for others that multiply; "consumer": multiplies what others copy, one for
  // each warpgroup; "all": there is no other role; "idle": ends at once; else "role". A number
  // follows where several have one name.
  std::string name;
  uint32_t first_warp = 0, last_warp = 0;
  std::array<double, kStalls> stalls{};
  double period = 0;    // cycles of a round of the main loop, on average; 0 if there is no loop
  uint64_t rounds = 0;  // that the period is of
};

std::vector<RoleTime> find_roles(const Program& program, const ReplayResult& replay);

}  // namespace sim::clock
