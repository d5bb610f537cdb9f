// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file finds the anchors of each SASS block, and how often the block does them.
#include <algorithm>
#include <set>
#include <tuple>

#include "sim/clock/walk/sass_map.h"
#include "sim/exec/trace.h"
#include "sim/ptx/tensor.h"

namespace sim::clock {
namespace {

template <class T>
T median(std::vector<T> all) {
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

// Machine code may need several instructions for one of these.
bool may_be_several(const Inst& in, const InstInfo& info) {
  switch (info.form.op) {
    case sim::Op::wmma_load:
    case sim::Op::wmma_store:
    case sim::Op::wmma_mma:
      return true;
    case sim::Op::mma: {
      const TensorConfig c = TensorConfig::unpack(in.imm);
      return c.a == Element::e4m3 || c.a == Element::e5m2 || c.a == Element::f64 ||
             element_bits(c.a) <= 4;
    }
    default:
      return false;
  }
}

}  // namespace

// ptxas may give two accesses the line of one, if they are alike and stand in one block. Then the
// one has twice as many instructions as its neighbours, and the other has none in the whole
// program: they become one anchor.
void SassMap::join_twins() {
  using Kind = std::tuple<uint32_t, sim::Op, Type, Space, uint8_t>;
  std::map<Kind, std::vector<uint32_t>> absent;
  std::map<uint32_t, Kind> kinds;  // by anchor
  for (uint32_t pc = 0; pc < kind_of.size(); ++pc) {
    const Form& form = function.infos[function.code[pc].info].form;
    const bool access = kind_of[pc] == AnchorKind::load || kind_of[pc] == AnchorKind::write;
    if (!access || (form.op != sim::Op::ld && form.op != sim::Op::st)) continue;
    const Kind kind(ptx_block_of[pc], form.op, form.type(), form.space(), form.vector);
    if (anchor_of[pc] == kNowhere) {
      absent[kind].push_back(pc);
    } else {
      kinds.emplace(anchor_of[pc], kind);
    }
  }
  for (const SassBlock& sass_block : sass_blocks) {
    std::map<uint32_t, size_t> counts;
    for (uint32_t at = sass_block.first; at < sass_block.end; ++at) {
      const uint32_t anchor = anchor_of_op_[at];
      if (anchor != kNowhere && !anchors[anchor].weak()) ++counts[anchor];
    }
    std::vector<size_t> all;
    for (const auto& [anchor, count] : counts) all.push_back(count);
    for (const auto& [anchor, count] : counts) {
      const auto kind = kinds.find(anchor);
      if (kind == kinds.end() || count != 2 * median(all)) continue;
      auto& others = absent[kind->second];
      if (others.empty()) continue;
      anchor_of[others.front()] = anchor;
      others.erase(others.begin());
      kinds.erase(kind);
    }
  }
}

void SassMap::find_uses() {
  slot_of.resize(program.ops.size());
  std::vector<bool> guarded(anchors.size());
  for (uint32_t pc = 0; pc < kind_of.size(); ++pc) {
    if (anchor_of[pc] == kNowhere) continue;
    if (function.code[pc].guard != kPredTrue) guarded[anchor_of[pc]] = true;
    anchors[anchor_of[pc]].traced = leaves_effect(function, pc);
    if (may_be_several(function.code[pc], function.infos[function.code[pc].info])) {
      anchors[anchor_of[pc]].per_token = 0;  // found below
    }
  }
  for (SassBlock& sass_block : sass_blocks) {
    std::map<std::pair<uint32_t, bool>, uint32_t> known;
    for (uint32_t at = sass_block.first; at < sass_block.end; ++at) {
      const uint32_t anchor = anchor_of_op_[at];
      if (anchor == kNowhere) continue;
      const bool weak = anchors[anchor].weak();
      const bool condition = program.machine_code && program.ops[at].guarded && !weak;
      const auto [place, first] =
          known.try_emplace({anchor, condition}, static_cast<uint32_t>(sass_block.uses.size()));
      if (first) {
        sass_block.uses.push_back({anchor, 0, 0, condition, false, false});
        sass_block.uses.back().skips_empty =
            program.machine_code && !condition && !weak && guarded[anchor];
      }
      AnchorUse& use = sass_block.uses[place->second];
      slot_of[at] = {place->second, use.instructions++};
    }
  }
  own_guard_ = std::move(guarded);
}

// Returns how often a SASS block does a block of PTX: most of its anchors decide.
int SassMap::copies_of(const SassBlock& sass_block, uint32_t block) const {
  std::vector<int> counts;
  for (const AnchorUse& use : sass_block.uses) {
    const Anchor& anchor = anchors[use.anchor];
    if (anchor.block != block || anchor.weak() || anchor.kind == AnchorKind::wgmma) continue;
    if (anchor.per_token != 0) counts.push_back(static_cast<int>(use.instructions));
  }
  return counts.empty() ? 1 : median(counts);
}

// A SASS block does a block of PTX if it has half of its anchors. What it has of others was moved
// there, unless no SASS block does them.
void SassMap::find_homes() {
  std::map<uint32_t, std::set<uint32_t>> of_block;
  for (const Anchor& anchor : anchors) {
    if (!anchor.weak() && anchor.kind != AnchorKind::wgmma) {
      of_block[anchor.block].insert(static_cast<uint32_t>(&anchor - anchors.data()));
    }
  }
  std::set<uint32_t> owned;
  std::vector<std::map<uint32_t, std::set<uint32_t>>> here(sass_blocks.size());
  for (size_t k = 0; k < sass_blocks.size(); ++k) {
    for (const AnchorUse& use : sass_blocks[k].uses) {
      const Anchor& anchor = anchors[use.anchor];
      if (!anchor.weak() && anchor.kind != AnchorKind::wgmma)
        here[k][anchor.block].insert(use.anchor);
    }
    for (const auto& [block, own] : here[k]) {
      if (2 * own.size() >= of_block[block].size()) owned.insert(block);
    }
  }
  for (size_t k = 0; k < sass_blocks.size(); ++k) {
    SassBlock& sass_block = sass_blocks[k];
    std::map<uint32_t, size_t> votes;
    for (uint32_t at = sass_block.first; at < sass_block.end; ++at) {
      const auto block = ptx_block_of_line_.find(program.ops[at].line);
      if (block != ptx_block_of_line_.end() && !program.ops[at].guarded) ++votes[block->second];
    }
    size_t most = 0;
    uint32_t main = kNowhere;
    for (const auto& [block, count] : votes) {
      if (count > most) most = count, main = block;
    }
    // ptxas may begin a guarded block with loads that have no guard: they do no harm.
    std::map<uint32_t, std::pair<size_t, size_t>> guarded;  // of all, by block
    for (const AnchorUse& use : sass_block.uses) {
      auto& [some, all] = guarded[anchors[use.anchor].block];
      some += use.optional && !own_guard_[use.anchor] ? 1 : 0;
      all += anchors[use.anchor].weak() ? 0 : 1;
    }
    for (AnchorUse& use : sass_block.uses) {
      Anchor& anchor = anchors[use.anchor];
      const uint32_t block = anchor.block;
      const auto [some, all] = guarded[block];
      if (anchor.kind == AnchorKind::load && 2 * some > all) use.optional = true;
      if (anchor.per_token == 0) {
        const auto each = static_cast<int>(use.instructions) / copies_of(sass_block, block);
        auto& least = several_[use.anchor];
        least = least == 0 ? std::max(1, each) : std::clamp(each, 1, least);
      }
      if (use.optional && own_guard_[use.anchor] && block == main) use.optional = false;
      if (anchor.weak() || anchor.kind == AnchorKind::wgmma) continue;
      const bool does = 2 * here[k][block].size() >= of_block[block].size();
      use.moved = !does && block != main && owned.count(block) != 0;
    }
  }
  for (const auto& [anchor, each] : several_) anchors[anchor].per_token = each;
  for (SassBlock& sass_block : sass_blocks) {
    for (AnchorUse& use : sass_block.uses) {
      const Anchor& anchor = anchors[use.anchor];
      const auto each = static_cast<uint32_t>(anchor.per_token);
      use.tokens = anchor.weak() ? static_cast<uint32_t>(copies_of(sass_block, anchor.block))
                                 : std::max(1u, use.instructions / each);
    }
  }
}

// A block of PTX that has no anchor is still seen by its arithmetic: in the SASS blocks that have
// most of its lines.
void SassMap::find_visits() {
  std::vector<bool> marked(blocks);
  for (uint32_t pc = 0; pc < kind_of.size(); ++pc) {
    if (anchor_of[pc] != kNowhere) marked[ptx_block_of[pc]] = true;
  }
  struct Share {
    uint32_t sass_block;
    size_t lines;
    int copies;
    bool guarded;
  };
  std::map<uint32_t, std::vector<Share>> shares;  // by block
  for (uint32_t k = 0; k < sass_blocks.size(); ++k) {
    std::map<uint32_t, std::map<int, int>> counts;
    std::set<uint32_t> free;
    for (uint32_t at = sass_blocks[k].first; at < sass_blocks[k].end; ++at) {
      const Op& op = program.ops[at];
      const auto block = ptx_block_of_line_.find(op.line);
      if (block == ptx_block_of_line_.end() || marked[block->second]) continue;
      if (op.unit == Unit::control) continue;
      ++counts[block->second][op.line];
      if (!op.guarded) free.insert(block->second);
    }
    for (const auto& [block, lines] : counts) {
      std::vector<int> all;
      for (const auto& [line, count] : lines) all.push_back(count);
      shares[block].push_back({k, lines.size(), median(all), free.count(block) == 0});
    }
  }
  for (const auto& [block, all] : shares) {
    size_t most = 0;
    for (const Share& share : all) most = std::max(most, share.lines);
    int least = 0;
    for (const Share& share : all) {
      if (2 * share.lines >= most) least = least ? std::min(least, share.copies) : share.copies;
    }
    anchor_of_ptx_block[block] = static_cast<uint32_t>(anchors.size());
    const auto first =
        std::find(ptx_block_of.begin(), ptx_block_of.end(), block) - ptx_block_of.begin();
    anchors.push_back({AnchorKind::visit, block, static_cast<uint32_t>(first)});
    for (const Share& share : all) {
      if (2 * share.lines < most) continue;
      const auto tokens = static_cast<uint32_t>(std::max(1, share.copies / least));
      sass_blocks[share.sass_block].uses.push_back(
          {anchor_of_ptx_block[block], 0, tokens, share.guarded, false, false});
    }
  }
}

}  // namespace sim::clock
