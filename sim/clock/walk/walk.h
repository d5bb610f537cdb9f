// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A walk tells what a warp did in PTX as a way through a Program. A Program that was made from PTX
// has its blocks, so the walk follows them. In machine code it goes the way that search.h finds.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/clock/walk/map.h"
#include "sim/clock/walk/progress.h"
#include "sim/clock/walk/track.h"
#include "sim/exec/trace.h"

namespace sim::clock {

// The instructions that a warp issues, one by one, with what each did.
class Walk {
 public:
  Walk(const Map& map, const WarpTrace& trace);

  struct Step {
    uint32_t op = kNowhere;          // kNowhere: the warp has ended
    const Effect* effect = nullptr;  // null: none is known
  };
  Step next();

 private:
  uint32_t token_of(Map::Place place) const;
  const Effect* effect_of(uint32_t op) const;
  void cut(const Piece& piece);

  const Map& map_;
  const WarpTrace& trace_;
  Track track_;
  std::vector<uint32_t> pieces_;  // in the order in which the warp does them
  size_t next_piece_ = 0;
  uint32_t at_ = 0, end_ = 0;  // in the piece
  Progress progress_;
  Cursors cursors_;
  std::vector<uint32_t> bound_;   // tokens, by use of the piece and turn
  std::vector<uint32_t> starts_;  // of each use in them
};

}  // namespace sim::clock
