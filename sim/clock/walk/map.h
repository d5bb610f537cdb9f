// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Which instructions of a program stand for which of the PTX.
//
// Machine code is in another order than PTX, with other branches: ptxas moves instructions, turns
// branches into guards, copies code and unrolls loops. But what it does to memory, to barriers and
// in the tensor cores stays, with the line of the PTX that it comes from, and so do the branches
// that are left. These are marks: things that both the PTX and the program show. What a warp did in
// PTX is a row of marks (track.h), and the way that it takes through the program is the one whose
// marks are that row (search.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "sim/clock/program.h"
#include "sim/ptx/code.h"

namespace sim::clock {

class Ways;

// A MarkKind tells instructions apart that never stand for one another.
enum class MarkKind : uint8_t {
  none,
  load,
  write,  // stores and atomics
  product,
  wgmma,
  copy,
  tma,
  shuffle,
  barrier,
  barrier_arrive,
  group_commit,
  group_wait,
  bulk_commit,
  arrive,
  copies_arrive,
  wait,
  wgmma_wait,
  cluster_wait,
  branch,  // with a condition
  visit    // a block of PTX that has none of the others
};
MarkKind mark_kind(const Op& op);

// Says which instructions of a function begin a block: no branch leads past the first of a block,
// and none away before its last.
std::vector<bool> block_leaders(const Function& function);

// How much it counts that a mark is missing or too many: arithmetic moves, so that visits and
// branches may not be where they were.
constexpr int64_t kFixedWeight = 16384, kWeakWeight = 1024;

struct Mark {
  MarkKind kind = MarkKind::none;
  uint32_t block = 0;      // of PTX
  uint32_t pc = kNowhere;  // the instruction of PTX, if it is one; a visit: its first
  int per_token = 1;       // instructions of the program for one of the PTX
  bool traced = false;     // a trace has effects of it
  bool weak() const { return kind == MarkKind::branch || kind == MarkKind::visit; }
  int64_t weight() const { return weak() ? kWeakWeight : kFixedWeight; }
};

// A Use is a mark in a piece of the program, with all its instructions there.
struct Use {
  uint32_t mark = 0;
  uint32_t instructions = 0;
  uint32_t tokens = 0;       // how often the piece does what the mark stands for
  bool optional = false;     // a guard stands for a branch of PTX: it may do nothing
  bool moved = false;        // from a block of PTX that is elsewhere in the program
  bool skips_empty = false;  // it is branched around where PTX has a guard
};

// A Piece is instructions of the program without a branch between them.
struct Piece {
  enum class End : uint8_t {
    falls,  // into the next piece
    jumps,
    forks,  // jumps or falls
    exits,
    may_exit,
    calls,
    may_call,
    returns,
    meets  // lanes wait here for those that went another way
  };
  uint32_t first = 0, end = 0;
  End how = End::falls;
  std::vector<uint32_t> targets;  // pieces
  std::vector<Use> uses;
  uint32_t tokens = 0;  // of all uses
  // If the branch at the end of a fork is one of PTX, this says whether both jump together.
  enum class Sense : uint8_t { unknown, same, opposite };
  Sense sense = Sense::unknown;
};

// It is made once for a kernel.
class Map {
 public:
  Map(const Function& function, const Program& program);

  const Function& function;
  const Program& program;

  // PTX
  std::vector<uint32_t> block_of;  // by instruction
  std::vector<bool> leads;         // the instruction begins a block
  uint32_t blocks = 0;
  std::vector<uint32_t> mark_of;  // by instruction; kNowhere: none, or it is not in the program
  std::vector<uint32_t> mark_of_block;  // the visit of a block, if that is a mark
  std::vector<MarkKind> kind_of;        // by instruction

  // The program
  std::vector<Mark> marks;
  std::vector<Piece> pieces;
  struct Place {  // of an instruction among the marks of its piece
    uint32_t use = kNowhere, number = 0;
  };
  std::vector<Place> place_of;     // by instruction
  std::vector<uint32_t> piece_of;  // by instruction
  // By block of PTX: its piece in a program that was made from PTX.
  std::vector<uint32_t> piece_of_block;
  std::shared_ptr<Ways> ways;  // through machine code, of warps so far

 private:
  std::map<int, uint32_t> block_of_line_;  // of PTX
  std::map<std::pair<int, MarkKind>, uint32_t> pc_of_line_;
  std::vector<uint32_t> pc_of_, mark_of_op_;  // by instruction of the program, or kNowhere
  std::vector<bool> own_guard_;               // by mark: it has a guard in PTX
  std::map<uint32_t, int> several_;           // by mark: instructions for one of PTX

  void find_blocks();
  uint32_t block_at(int line) const;
  void find_kinds();
  void bind();
  uint32_t bound(const Op& op, MarkKind kind) const;
  void add_marks();
  void join_twins();
  void find_pieces();
  void find_ends();
  void find_uses();
  int copies_of(const Piece& piece, uint32_t block) const;
  void find_homes();
  void find_visits();
  void find_senses();
  std::vector<bool> unrolled() const;  // by mark
  void first_of_program(uint32_t piece, std::set<uint32_t>* marks_found) const;
  void first_of_ptx(uint32_t pc, std::set<uint32_t>* marks_found) const;
};

}  // namespace sim::clock
