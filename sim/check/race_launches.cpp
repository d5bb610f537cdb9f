// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file says what a thread knows of other launches: what its launch came after, what it learned
// by an acquire from a launch that runs beside it, and, where programmatic dependent launch let it
// start early, what griddepcontrol.wait has made sure of. That holds whatever the schedule, so that
// one schedule shows the races of all.
#include <algorithm>

#include "sim/check/race_shadow.h"
#include "sim/exec/grid_state.h"

namespace sim {

bool race_knows(const RaceWarp& me, const RaceLaunch& other) {
  const RaceGrid& grid = *me.block->grid;
  if (grid.self->order.covers(other.order)) return true;
  if (me.known.far.empty()) return false;
  if (me.known.of(kGenericClock, other.end_agent())) return true;
  const auto& all = grid.world->launches;
  return std::any_of(all.begin(), all.end(), [&](const auto& between) {
    return between->order.covers(other.order) &&
           (me.known.of(kGenericClock, between->start_agent()) ||
            me.known.of(kGenericClock, between->end_agent()));
  });
}

void race_grid_wait(Warp& w) {
  if (!w.race) return;
  RaceWarp& r = *w.race;
  const RaceGrid& grid = *r.block->grid;
  for (const uint64_t number : grid.self->order.early) {
    const RaceLaunch* const front = grid.world->find(grid.self->order.line, number);
    for (int kind = 0; front && kind < kClockKinds; ++kind) {
      r.known.raise(static_cast<ClockKind>(kind), front->end_agent(), 1);
    }
  }
}

bool race_has_waited(const Warp& w) {
  const RaceWarp& r = *w.race;
  const RaceGrid& grid = *r.block->grid;
  const LaunchOrder& order = grid.self->order;
  return std::all_of(order.early.begin(), order.early.end(), [&](uint64_t number) {
    const RaceLaunch* const front = grid.world->find(order.line, number);
    return !front || r.known.of(kGenericClock, front->end_agent());
  });
}

}  // namespace sim
