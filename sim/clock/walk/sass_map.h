// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A SassMap says which instructions of a program stand for which of the PTX.
//
// Machine code is in another order than PTX, with other branches: ptxas moves instructions, turns
// branches into guards, copies code and unrolls loops. Accesses to memory, barriers and products of
// the tensor cores stay, each with its line of the PTX, and so do the branches that are left. These
// are the anchors: both the PTX and the program show them. What a warp did in PTX is a row of
// anchors (track.h), and its path through the program is the one whose anchors are that row
// (search.h).
//
// A program that was made from PTX has a map too. Its blocks are those of the PTX.
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

class SassPaths;

// An AnchorKind tells instructions apart that never stand for one another.
enum class AnchorKind : uint8_t {
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
AnchorKind anchor_kind(const Op& op);

// Says which instructions of a function begin a block: no branch leads past the first of a block,
// and none away before its last.
std::vector<bool> block_leaders(const Function& function);

// An anchor that is missing or too many counts as much as this. Branches and visits count less: as
// arithmetic moves, they may not be where they were.
constexpr int64_t kFixedWeight = 16384, kWeakWeight = 1024;

struct Anchor {
  AnchorKind kind = AnchorKind::none;
  uint32_t block = 0;      // of PTX
  uint32_t pc = kNowhere;  // the instruction of PTX, if it is one; a visit: its first
  int per_token = 1;       // instructions of the program for one of the PTX
  bool traced = false;     // a trace has effects of it
  bool weak() const { return kind == AnchorKind::branch || kind == AnchorKind::visit; }
  int64_t weight() const { return weak() ? kWeakWeight : kFixedWeight; }
};

// An AnchorUse is an anchor in a SASS block of the program, with all its instructions there.
struct AnchorUse {
  uint32_t anchor = 0;
  uint32_t instructions = 0;
  uint32_t tokens = 0;       // how often the SASS block does what the anchor stands for
  bool optional = false;     // a guard stands for a branch of PTX: it may do nothing
  bool moved = false;        // from a block of PTX that is elsewhere in the program
  bool skips_empty = false;  // it is branched around where PTX has a guard
};

// A SassBlock is a basic block of the program: instructions without a branch between them.
struct SassBlock {
  enum class End : uint8_t {
    falls,  // into the next SASS block
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
  std::vector<uint32_t> targets;  // SASS blocks
  std::vector<AnchorUse> uses;
  uint32_t tokens = 0;  // of all uses
  // If the branch at the end of a fork is one of PTX, this says whether both jump together.
  enum class Sense : uint8_t { unknown, same, opposite };
  Sense sense = Sense::unknown;
};

// A SassMap is made once for a kernel.
class SassMap {
 public:
  SassMap(const Function& function, const Program& program);

  const Function& function;
  const Program& program;

  // PTX
  std::vector<uint32_t> ptx_block_of;  // by instruction
  std::vector<bool> leads;             // the instruction begins a block
  uint32_t blocks = 0;
  std::vector<uint32_t> anchor_of;  // by instruction; kNowhere: none, or it is not in the program
  std::vector<uint32_t> anchor_of_ptx_block;  // the visit of a block, if that is an anchor
  std::vector<AnchorKind> kind_of;            // by instruction

  // The program
  std::vector<Anchor> anchors;
  std::vector<SassBlock> sass_blocks;
  struct Slot {  // of an instruction among the anchors of its SASS block
    uint32_t use = kNowhere, number = 0;
  };
  std::vector<Slot> slot_of;            // by instruction
  std::vector<uint32_t> sass_block_of;  // by instruction
  // By block of PTX: its SASS block in a program that was made from PTX.
  std::vector<uint32_t> sass_block_of_ptx_block;
  std::shared_ptr<SassPaths> paths;  // through machine code, of warps so far

 private:
  std::map<int, uint32_t> ptx_block_of_line_;
  std::map<std::pair<int, AnchorKind>, uint32_t> pc_of_line_;
  std::vector<uint32_t> pc_of_, anchor_of_op_;  // by instruction of the program, or kNowhere
  std::vector<bool> own_guard_;                 // by anchor: it has a guard in PTX
  std::map<uint32_t, int> several_;             // by anchor: instructions for one of PTX

  void find_blocks();
  uint32_t block_at(int line) const;
  void find_kinds();
  void bind();
  uint32_t bound(const Op& op, AnchorKind kind) const;
  void add_anchors();
  void join_twins();
  void find_sass_blocks();
  void find_ends();
  void find_uses();
  int copies_of(const SassBlock& sass_block, uint32_t block) const;
  void find_homes();
  void find_visits();
  void find_senses();
  std::vector<bool> unrolled() const;  // by anchor
  void first_of_program(uint32_t sass_block, std::set<uint32_t>* anchors_found) const;
  void first_of_ptx(uint32_t pc, std::set<uint32_t>* anchors_found) const;
};

}  // namespace sim::clock
