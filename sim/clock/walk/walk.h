// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A walk tells what a warp did in PTX as a path through a Program. A Program that was made from PTX
// has its blocks, so the walk follows them. In machine code it takes the path that search.h finds.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/clock/walk/progress.h"
#include "sim/clock/walk/sass_map.h"
#include "sim/clock/walk/track.h"
#include "sim/exec/trace.h"

namespace sim::clock {

// A Walk gives the instructions that a warp issues, one by one, with what each did.
class Walk {
 public:
  Walk(const SassMap& map, const WarpTrace& trace);

  struct Step {
    uint32_t op = kNowhere;          // kNowhere: the warp has ended
    const Effect* effect = nullptr;  // null: none is known
  };
  Step next();

 private:
  uint32_t token_of(SassMap::Slot place) const;
  const Effect* effect_of(uint32_t op) const;
  void cut(const SassBlock& sass_block);

  const SassMap& map_;
  const WarpTrace& trace_;
  Track track_;
  std::vector<uint32_t> sass_blocks_;  // in the order in which the warp does them
  size_t next_sass_block_ = 0;
  uint32_t at_ = 0, end_ = 0;  // in the SASS block
  Progress progress_;
  Cursors cursors_;
  std::vector<uint32_t> bound_;   // tokens, by use of the SASS block and turn
  std::vector<uint32_t> starts_;  // of each use in them
};

}  // namespace sim::clock
