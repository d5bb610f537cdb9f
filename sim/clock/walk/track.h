// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A Track is what one warp did, told in anchors (sass_map.h), in the order of its PTX.
//
// A wait that found its phase unfinished is tried again: how often is up to the schedule of the
// simulator and means nothing, so that only the last try is told. Lanes that went different ways
// take turns in the simulator, as its seed wants; a multiprocessor does one way up to where the
// lanes meet, then the other: here the longer one first.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/clock/walk/sass_map.h"
#include "sim/exec/trace.h"

namespace sim::clock {

struct Track {
  Track(const SassMap& map, const WarpTrace& trace);

  struct Token {
    uint32_t anchor = 0;
    uint32_t effect = kNowhere;  // index in the trace; kNowhere: none is known
    uint32_t next = kNowhere;    // token of the same anchor
    bool empty = false;          // its guard held it back, or it is a try that may be left out
    enum class Goes : uint8_t { unknown, on, jumps, both };
    Goes goes = Goes::unknown;  // where lanes went from a branch
  };
  std::vector<Token> tokens;
  std::vector<uint32_t> first;   // token by anchor; kNowhere: none
  std::vector<int64_t> weight;   // of all tokens before each, and of all
  std::vector<uint32_t> blocks;  // of PTX, in the order of their visits
  uint64_t executed = 0;         // instructions of the PTX
  bool cut = false;              // the trace stops before the warp ends

  int64_t weight_of(const SassMap& map, uint32_t token) const {
    return tokens[token].empty ? 0 : map.anchors[tokens[token].anchor].weight();
  }
};

}  // namespace sim::clock
