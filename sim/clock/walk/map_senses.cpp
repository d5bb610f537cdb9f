// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Whether a branch of the program jumps when that of PTX does, or when it does not: ptxas turns
// many around. The marks that come first on either side tell.
#include <algorithm>
#include <set>

#include "sim/clock/walk/map.h"

namespace sim::clock {
namespace {

constexpr uint32_t kEnd = kNowhere - 1;  // stands for the end of the kernel

size_t shared(const std::set<uint32_t>& a, const std::set<uint32_t>& b,
              const std::set<uint32_t>& without) {
  return static_cast<size_t>(std::count_if(a.begin(), a.end(), [&](uint32_t mark) {
    return b.count(mark) != 0 && without.count(mark) == 0;
  }));
}

}  // namespace

// The marks of the first pieces that have any, on all ways from one.
void Map::first_of_program(uint32_t piece, std::set<uint32_t>* found) const {
  std::vector<uint32_t> open = {piece};
  std::set<uint32_t> seen;
  while (!open.empty()) {
    const uint32_t at = open.back();
    open.pop_back();
    if (at >= pieces.size() || !seen.insert(at).second) continue;
    const Piece& p = pieces[at];
    for (const Use& use : p.uses) found->insert(use.mark);
    if (!p.uses.empty()) continue;
    using End = Piece::End;
    if (p.how == End::exits || p.how == End::may_exit) found->insert(kEnd);
    open.insert(open.end(), p.targets.begin(), p.targets.end());
    if (p.how != End::exits && p.how != End::jumps && p.how != End::returns) open.push_back(at + 1);
  }
}

// The same of PTX, from an instruction that begins a block.
void Map::first_of_ptx(uint32_t pc, std::set<uint32_t>* found) const {
  std::vector<uint32_t> open = {pc};
  std::set<uint32_t> seen;
  while (!open.empty()) {
    uint32_t at = open.back();
    open.pop_back();
    if (at >= function.code.size()) found->insert(kEnd);
    if (at >= function.code.size() || !seen.insert(at).second) continue;
    const uint32_t block = block_of[at];
    bool any = mark_of_block[block] != kNowhere;
    if (any) found->insert(mark_of_block[block]);
    for (; at < function.code.size() && block_of[at] == block; ++at) {
      if (mark_of[at] == kNowhere) continue;
      found->insert(mark_of[at]);
      any = true;
    }
    if (any) continue;
    const Inst& last = function.code[at - 1];
    const bool always = last.guard == kPredTrue;
    if (last.kind == Kind::exit || last.kind == Kind::ret) found->insert(kEnd);
    if (last.kind == Kind::branch) open.push_back(last.aux);
    if (last.kind == Kind::branch_table && last.aux < function.tables.size()) {
      const auto& table = function.tables[last.aux];
      open.insert(open.end(), table.begin(), table.end());
    }
    const bool leaves = last.kind == Kind::exit || last.kind == Kind::ret ||
                        last.kind == Kind::branch || last.kind == Kind::branch_table;
    if (!leaves || !always) open.push_back(at);
  }
}

// A loop that was unrolled has branches that ask whether there are several rounds more: they say
// nothing of the one in PTX.
std::vector<bool> Map::unrolled() const {
  std::vector<bool> out(marks.size());
  for (const Piece& piece : pieces) {
    for (const Use& use : piece.uses) {
      if (marks[use.mark].kind == MarkKind::branch && use.tokens > 1) out[use.mark] = true;
    }
  }
  return out;
}

void Map::find_senses() {
  const std::vector<bool> several = unrolled();
  for (uint32_t k = 0; k < pieces.size(); ++k) {
    Piece& piece = pieces[k];
    using End = Piece::End;
    if (piece.how != End::forks && piece.how != End::may_exit) continue;
    const uint32_t mark = mark_of_op_[piece.end - 1];
    if (mark == kNowhere || marks[mark].pc == kNowhere || several[mark]) continue;
    const uint32_t pc = marks[mark].pc;
    const Inst& in = function.code[pc];
    if (in.kind == Kind::branch_table || piece.targets.size() > 1) continue;
    std::set<uint32_t> on, jump, ptx_on, ptx_jump;
    first_of_program(k + 1, &on);
    piece.how == End::forks ? first_of_program(piece.targets[0], &jump)
                            : static_cast<void>(jump.insert(kEnd));
    first_of_ptx(pc + 1, &ptx_on);
    in.kind == Kind::branch ? first_of_ptx(in.aux, &ptx_jump)
                            : static_cast<void>(ptx_jump.insert(kEnd));
    const size_t same = shared(jump, ptx_jump, ptx_on) + shared(on, ptx_on, ptx_jump);
    const size_t opposite = shared(jump, ptx_on, ptx_jump) + shared(on, ptx_jump, ptx_on);
    if (same > 2 * opposite) piece.sense = Piece::Sense::same;
    if (opposite > 2 * same) piece.sense = Piece::Sense::opposite;
  }
}

}  // namespace sim::clock
