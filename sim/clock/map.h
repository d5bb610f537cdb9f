// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Which parts of a program stand for which parts of the PTX.
//
// Machine code is in another order than PTX, with other branches: ptxas moves instructions, turns
// branches into guards and unrolls loops. But it leaves memory accesses, barriers and products in
// their blocks. A piece of machine code with such instructions is fixed, and has the blocks of PTX
// that they come from as its homes.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/clock/program.h"
#include "sim/ptx/code.h"

namespace sim::clock {

// Says whether a compiler leaves an instruction in its block: not arithmetic, which it moves far.
bool stays(const Op& op);

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

}  // namespace sim::clock
