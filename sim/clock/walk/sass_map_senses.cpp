// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file finds the sense of each branch: whether it jumps when that of PTX does, or when that
// does not, as ptxas turns many around. The anchors that come first on either side tell.
#include <algorithm>
#include <set>

#include "sim/clock/walk/sass_map.h"

namespace sim::clock {
namespace {

constexpr uint32_t kEnd = kNowhere - 1;  // stands for the end of the kernel

size_t shared(const std::set<uint32_t>& a, const std::set<uint32_t>& b,
              const std::set<uint32_t>& without) {
  return static_cast<size_t>(std::count_if(a.begin(), a.end(), [&](uint32_t anchor) {
    return b.count(anchor) != 0 && without.count(anchor) == 0;
  }));
}

}  // namespace

// Finds the anchors of the first SASS blocks that have any, on all paths from one.
void SassMap::first_of_program(uint32_t sass_block, std::set<uint32_t>* found) const {
  std::vector<uint32_t> open = {sass_block};
  std::set<uint32_t> seen;
  while (!open.empty()) {
    const uint32_t at = open.back();
    open.pop_back();
    if (at >= sass_blocks.size() || !seen.insert(at).second) continue;
    const SassBlock& p = sass_blocks[at];
    for (const AnchorUse& use : p.uses) found->insert(use.anchor);
    if (!p.uses.empty()) continue;
    using End = SassBlock::End;
    if (p.how == End::exits || p.how == End::may_exit) found->insert(kEnd);
    open.insert(open.end(), p.targets.begin(), p.targets.end());
    if (p.how != End::exits && p.how != End::jumps && p.how != End::returns) open.push_back(at + 1);
  }
}

// Finds the same in PTX, from an instruction that begins a block.
void SassMap::first_of_ptx(uint32_t pc, std::set<uint32_t>* found) const {
  std::vector<uint32_t> open = {pc};
  std::set<uint32_t> seen;
  while (!open.empty()) {
    uint32_t at = open.back();
    open.pop_back();
    if (at >= function.code.size()) found->insert(kEnd);
    if (at >= function.code.size() || !seen.insert(at).second) continue;
    const uint32_t block = ptx_block_of[at];
    bool any = anchor_of_ptx_block[block] != kNowhere;
    if (any) found->insert(anchor_of_ptx_block[block]);
    for (; at < function.code.size() && ptx_block_of[at] == block; ++at) {
      if (anchor_of[at] == kNowhere) continue;
      found->insert(anchor_of[at]);
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
std::vector<bool> SassMap::unrolled() const {
  std::vector<bool> out(anchors.size());
  for (const SassBlock& sass_block : sass_blocks) {
    for (const AnchorUse& use : sass_block.uses) {
      if (anchors[use.anchor].kind == AnchorKind::branch && use.tokens > 1) out[use.anchor] = true;
    }
  }
  return out;
}

void SassMap::find_senses() {
  const std::vector<bool> several = unrolled();
  for (uint32_t k = 0; k < sass_blocks.size(); ++k) {
    SassBlock& sass_block = sass_blocks[k];
    using End = SassBlock::End;
    if (sass_block.how != End::forks && sass_block.how != End::may_exit) continue;
    const uint32_t anchor = anchor_of_op_[sass_block.end - 1];
    if (anchor == kNowhere || anchors[anchor].pc == kNowhere || several[anchor]) continue;
    const uint32_t pc = anchors[anchor].pc;
    const Inst& in = function.code[pc];
    if (in.kind == Kind::branch_table || sass_block.targets.size() > 1) continue;
    std::set<uint32_t> on, jump, ptx_on, ptx_jump;
    first_of_program(k + 1, &on);
    sass_block.how == End::forks ? first_of_program(sass_block.targets[0], &jump)
                                 : static_cast<void>(jump.insert(kEnd));
    first_of_ptx(pc + 1, &ptx_on);
    in.kind == Kind::branch ? first_of_ptx(in.aux, &ptx_jump)
                            : static_cast<void>(ptx_jump.insert(kEnd));
    const size_t same = shared(jump, ptx_jump, ptx_on) + shared(on, ptx_on, ptx_jump);
    const size_t opposite = shared(jump, ptx_on, ptx_jump) + shared(on, ptx_jump, ptx_on);
    if (same > 2 * opposite) sass_block.sense = SassBlock::Sense::same;
    if (opposite > 2 * same) sass_block.sense = SassBlock::Sense::opposite;
  }
}

}  // namespace sim::clock
