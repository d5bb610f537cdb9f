// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What a warp did in PTX, told as a walk through a Program: a branch of the program is decided by
// what the PTX did next. Of two ways the warp takes the one that leads to a fixed piece (map.h)
// whose home it visited first.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "sim/clock/map.h"
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
  void visit_blocks();
  uint32_t choose(uint32_t at);
  int64_t next_visit(int block, int64_t after) const;
  int64_t visit_of(uint32_t piece) const;
  int64_t position(uint32_t op) const;
  int64_t guess(uint32_t op) const;
  bool takes_copies(uint32_t on, uint32_t there, int64_t visit) const;
  int64_t last_of_round(const Map::Piece& piece, int64_t first) const;
  void enter(uint32_t op);
  uint32_t meet(uint32_t at);

  const Map& map_;
  const WarpTrace& trace_;
  std::vector<std::vector<int64_t>> visits_;  // by block of PTX: when
  int64_t count_ = 0;                         // of all visits
  int64_t last_fixed_ = 0;  // the last visit of a block that is home to a fixed piece
  std::unordered_map<int, std::vector<uint32_t>> effects_;  // by line, in order
  std::unordered_map<int, uint32_t> used_;
  struct Way {
    uint32_t op;
    int64_t since;
  };
  std::vector<Way> other_ways_;  // that some lanes may still go
  std::vector<uint32_t> calls_;  // where those that run come back to
  uint32_t at_ = 0;
  int64_t now_ = -1;        // the visit that the walk is in
  uint32_t in_ = kNowhere;  // the fixed piece that it came to last
  uint64_t left_;           // instructions before it gives up
};

}  // namespace sim::clock
