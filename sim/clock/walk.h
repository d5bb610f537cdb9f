// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What a warp did in PTX, told as a walk through a Program.
//
// Machine code is in another order than PTX, with other branches: ptxas moves instructions, turns
// branches into guards and unrolls loops. So a branch of machine code is decided by what the PTX
// did next: each piece of machine code has a home, the block of PTX that most of its instructions
// come from, and the way is taken whose home the warp visited first. Arithmetic moves far, memory
// accesses, barriers and products do not: a piece without any of these has several homes, of which
// the next one counts.
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
    std::vector<int> homes;  // blocks of PTX; one, if the piece has what stays in its block
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
  std::vector<std::vector<int>> lines;  // of each piece, those that stand for its home, sorted
  std::vector<std::vector<int>> fixed_lines;  // those of accesses, barriers and products

 private:
  void find_blocks();
  void find_pieces();
  void find_homes();
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
  bool tries_again(uint32_t op, int line, int hops) const;
  int64_t position(uint32_t op, uint32_t from, uint32_t* copies) const;
  int64_t next_visit(int block, int64_t after) const;
  int64_t next_visit(const Map::Piece& piece, int64_t after) const;
  void enter(uint32_t op, uint32_t from, bool chosen);
  uint32_t meet(uint32_t at);

  const Map& map_;
  const WarpTrace& trace_;
  std::vector<std::vector<int64_t>> visits_;                // by block of PTX: when
  int64_t count_ = 0;                                       // of all visits
  std::unordered_map<int, std::vector<uint32_t>> effects_;  // by line, in order
  std::unordered_map<int, uint32_t> used_;
  struct Way {
    uint32_t op;
    int64_t since;
  };
  std::vector<Way> other_ways_;  // that some lanes may still go
  uint32_t at_ = 0;
  int64_t now_ = -1;  // the visit that the walk is in
  int waited_ = 0;    // line of the wait that the next branch is about
  uint64_t left_;     // instructions before it gives up
};

}  // namespace sim::clock
