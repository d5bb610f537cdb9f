// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The blocks of a grid on the multiprocessors: how long each takes, from those that were replayed,
// and when the last one ends.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/clock/walk/walk.h"
#include "sim/exec/launch.h"

namespace sim::clock {

inline uint64_t count_of(const uint32_t (&size)[3]) {
  return uint64_t{size[0]} * size[1] * size[2];
}

// Returns the axis of the grid that the work of a block depends on most.
int main_axis(const std::vector<BlockTrace>& traces, const std::vector<double>& cycles);

// Cycles of a block at each coordinate of the axis, between the replayed ones along a line.
std::vector<double> along_axis(const std::vector<BlockTrace>& traces,
                               const std::vector<double>& cycles, int axis, uint32_t size);

// The last blocks, which run faster once only they are left.
struct Tail {
  uint64_t blocks = 0;
  double speed = 1;
};

struct Placed {
  double cycles = 0, tail = 0;
};
// Gives the blocks in the order of the grid to the first place that is free, `start` cycles after
// the block before it has ended.
Placed place(const Grid& grid, const std::vector<double>& of_axis, int axis, uint64_t places,
             double start, const Tail& tail);

}  // namespace sim::clock
