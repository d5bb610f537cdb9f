// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What a warp did in PTX, told as a walk through a Program.
//
// Machine code is in another order than PTX, with other branches: ptxas moves instructions, turns
// branches into guards and unrolls loops. So a branch of machine code is decided by what the PTX
// did next. ptxas moves arithmetic far, but leaves memory accesses, barriers and products in their
// blocks. A piece of machine code with such instructions is fixed, and has the blocks of PTX that
// they come from as its homes. Of two ways the warp takes the one that leads to a fixed piece whose
// home it visited first.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "sim/clock/program.h"
#include "sim/exec/trace.h"
#include "sim/ptx/code.h"

namespace sim::clock {

// Blocks of PTX and of the program, and which belong together. It is made once for a kernel.
class Map {
 public:
  Map(const Function& function, const Program& program);

  struct Piece {  // instructions of the program without a branch between them
    uint32_t first = 0, end = 0;
    std::vector<int> homes;  // blocks of PTX, the main one first
    int copies = 1;          // how often the piece has the home's instructions: an unrolled loop
    bool fixed = false;      // it has memory accesses, barriers or products
  };
  const Function& function;
  const Program& program;
  std::vector<Piece> pieces;
  std::vector<uint32_t> piece_of;  // by instruction of the program
  std::vector<uint32_t> block_of;  // of PTX, by instruction
  std::vector<bool> leads;         // the instruction begins a block of PTX
  uint32_t blocks = 0;
  std::vector<int> line_of;             // by instruction of PTX
  std::vector<int> line_of_op;          // by instruction of the program: the PTX line that it does
  std::vector<std::vector<int>> lines;  // of the fixed instructions of each piece, sorted
  std::vector<std::vector<uint32_t>> ahead;  // the fixed pieces that each piece leads to first

 private:
  void find_blocks();
  void find_products();
  void find_waits();
  void find_pieces();
  void find_homes();
  void look_ahead();
};

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
