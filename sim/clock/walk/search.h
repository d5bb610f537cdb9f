// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The way of a warp through machine code: the one whose marks are the track of the warp.
//
// At each branch whose outcome is not known both ways are followed. One that does a mark which the
// track does not have, or passes by one that it has, costs; ways that cost too much more than the
// best are given up, and of ways that come to one place with the same tokens taken the cheaper one
// goes on. So most of the time a single way is left, and the search takes two to three steps for
// each piece of the way. Where much disagrees there are many ways; their number is bounded.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "sim/clock/walk/track.h"

namespace sim::clock {

struct Way {
  std::vector<uint32_t> pieces;
  int64_t cost = 0;  // of what does not agree with the track
  uint64_t steps = 0;
};

// Warps that did the same go the same way, which is searched for once. For one thread at a time.
class Ways {
 public:
  const Way& of(const Map& map, const Track& track);

 private:
  std::map<std::vector<uint32_t>, Way> known_;
  uint64_t steps_ = 0;  // of all searches
};

}  // namespace sim::clock
