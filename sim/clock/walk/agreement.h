// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The agreement says for each warp how well a walk through a program does what the PTX did: each
// access, barrier, copy and product as often, and in the order of the PTX.
#pragma once

#include <functional>
#include <span>

#include "sim/clock/walk/walk.h"

namespace sim::clock {

// Gives the instructions of a walk, one by one.
using Steps = std::function<Walk::Step()>;

// An Agreement counts what a walk does too seldom, too often and at another time than the PTX, and
// all that it should do.
struct Agreement {
  double wanted = 0, missing = 0, extra = 0, misplaced = 0;
  double share() const;  // 1: all agrees
  void add(const Agreement& other);
};
Agreement compare(const SassMap& map, const WarpTrace& trace, const Steps& steps);

// Returns the share of what traced blocks did whose walks agree with the PTX.
double agreement(const SassMap& map, std::span<const BlockTrace> blocks);

}  // namespace sim::clock
