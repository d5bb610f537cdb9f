// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The search finds the path of a warp through machine code: the one whose anchors are the track of
// the warp.
//
// At each branch whose outcome is not known the search follows both sides. A path pays for each
// anchor that the track does not have, and for each that it passes by. Paths that cost too much
// more than the best are given up. If two paths come to one block with the same tokens taken, the
// cheaper one goes on. So most of the time a single path is left, and the search takes two to three
// steps for each SASS block of the path. If much disagrees there are many paths; their number is
// bounded.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "sim/clock/walk/track.h"

namespace sim::clock {

struct SassPath {
  std::vector<uint32_t> sass_blocks;
  int64_t cost = 0;  // of what does not agree with the track
  uint64_t steps = 0;
};

// Warps that did the same go the same path, which is searched for once. One thread at a time may
// ask.
class SassPaths {
 public:
  const SassPath& of(const SassMap& map, const Track& track);

 private:
  std::map<std::vector<uint32_t>, SassPath> known_;
  uint64_t steps_ = 0;  // of all searches
};

}  // namespace sim::clock
