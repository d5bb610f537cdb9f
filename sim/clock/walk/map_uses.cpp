// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Which marks each piece of a program has, and how often.
#include <algorithm>
#include <set>
#include <tuple>

#include "sim/clock/walk/map.h"
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
// program: they become one mark.
void Map::join_twins() {
  using Kind = std::tuple<uint32_t, sim::Op, Type, Space, uint8_t>;
  std::map<Kind, std::vector<uint32_t>> absent;
  std::map<uint32_t, Kind> kinds;  // by mark
  for (uint32_t pc = 0; pc < kind_of.size(); ++pc) {
    const Form& form = function.infos[function.code[pc].info].form;
    const bool access = kind_of[pc] == MarkKind::load || kind_of[pc] == MarkKind::write;
    if (!access || (form.op != sim::Op::ld && form.op != sim::Op::st)) continue;
    const Kind kind(block_of[pc], form.op, form.type(), form.space(), form.vector);
    if (mark_of[pc] == kNowhere) {
      absent[kind].push_back(pc);
    } else {
      kinds.emplace(mark_of[pc], kind);
    }
  }
  for (const Piece& piece : pieces) {
    std::map<uint32_t, size_t> counts;
    for (uint32_t at = piece.first; at < piece.end; ++at) {
      const uint32_t mark = mark_of_op_[at];
      if (mark != kNowhere && !marks[mark].weak()) ++counts[mark];
    }
    std::vector<size_t> all;
    for (const auto& [mark, count] : counts) all.push_back(count);
    for (const auto& [mark, count] : counts) {
      const auto kind = kinds.find(mark);
      if (kind == kinds.end() || count != 2 * median(all)) continue;
      auto& others = absent[kind->second];
      if (others.empty()) continue;
      mark_of[others.front()] = mark;
      others.erase(others.begin());
      kinds.erase(kind);
    }
  }
}

void Map::find_uses() {
  place_of.resize(program.ops.size());
  std::vector<bool> guarded(marks.size());
  for (uint32_t pc = 0; pc < kind_of.size(); ++pc) {
    if (mark_of[pc] == kNowhere) continue;
    if (function.code[pc].guard != kPredTrue) guarded[mark_of[pc]] = true;
    marks[mark_of[pc]].traced = leaves_effect(function, pc);
    if (may_be_several(function.code[pc], function.infos[function.code[pc].info])) {
      marks[mark_of[pc]].per_token = 0;  // found below
    }
  }
  for (Piece& piece : pieces) {
    std::map<std::pair<uint32_t, bool>, uint32_t> known;
    for (uint32_t at = piece.first; at < piece.end; ++at) {
      const uint32_t mark = mark_of_op_[at];
      if (mark == kNowhere) continue;
      const bool weak = marks[mark].weak();
      const bool condition = program.machine_code && program.ops[at].guarded && !weak;
      const auto [place, first] =
          known.try_emplace({mark, condition}, static_cast<uint32_t>(piece.uses.size()));
      if (first) {
        piece.uses.push_back({mark, 0, 0, condition, false, false});
        piece.uses.back().skips_empty =
            program.machine_code && !condition && !weak && guarded[mark];
      }
      Use& use = piece.uses[place->second];
      place_of[at] = {place->second, use.instructions++};
    }
  }
  own_guard_ = std::move(guarded);
}

// How often a piece does a block of PTX: most of its marks decide.
int Map::copies_of(const Piece& piece, uint32_t block) const {
  std::vector<int> counts;
  for (const Use& use : piece.uses) {
    const Mark& mark = marks[use.mark];
    if (mark.block != block || mark.weak() || mark.kind == MarkKind::wgmma) continue;
    if (mark.per_token != 0) counts.push_back(static_cast<int>(use.instructions));
  }
  return counts.empty() ? 1 : median(counts);
}

// A piece does a block of PTX if it has half of its marks. What it has of others was moved there,
// unless no piece does them.
void Map::find_homes() {
  std::map<uint32_t, std::set<uint32_t>> of_block;
  for (const Mark& mark : marks) {
    if (!mark.weak() && mark.kind != MarkKind::wgmma) {
      of_block[mark.block].insert(static_cast<uint32_t>(&mark - marks.data()));
    }
  }
  std::set<uint32_t> owned;
  std::vector<std::map<uint32_t, std::set<uint32_t>>> here(pieces.size());
  for (size_t k = 0; k < pieces.size(); ++k) {
    for (const Use& use : pieces[k].uses) {
      const Mark& mark = marks[use.mark];
      if (!mark.weak() && mark.kind != MarkKind::wgmma) here[k][mark.block].insert(use.mark);
    }
    for (const auto& [block, own] : here[k]) {
      if (2 * own.size() >= of_block[block].size()) owned.insert(block);
    }
  }
  for (size_t k = 0; k < pieces.size(); ++k) {
    Piece& piece = pieces[k];
    std::map<uint32_t, size_t> votes;
    for (uint32_t at = piece.first; at < piece.end; ++at) {
      const auto block = block_of_line_.find(program.ops[at].line);
      if (block != block_of_line_.end() && !program.ops[at].guarded) ++votes[block->second];
    }
    size_t most = 0;
    uint32_t main = kNowhere;
    for (const auto& [block, count] : votes) {
      if (count > most) most = count, main = block;
    }
    // ptxas may begin a guarded block with loads that have no guard: they do no harm.
    std::map<uint32_t, std::pair<size_t, size_t>> guarded;  // of all, by block
    for (const Use& use : piece.uses) {
      auto& [some, all] = guarded[marks[use.mark].block];
      some += use.optional && !own_guard_[use.mark] ? 1 : 0;
      all += marks[use.mark].weak() ? 0 : 1;
    }
    for (Use& use : piece.uses) {
      Mark& mark = marks[use.mark];
      const uint32_t block = mark.block;
      const auto [some, all] = guarded[block];
      if (mark.kind == MarkKind::load && 2 * some > all) use.optional = true;
      if (mark.per_token == 0) {
        const auto each = static_cast<int>(use.instructions) / copies_of(piece, block);
        auto& least = several_[use.mark];
        least = least == 0 ? std::max(1, each) : std::clamp(each, 1, least);
      }
      if (use.optional && own_guard_[use.mark] && block == main) use.optional = false;
      if (mark.weak() || mark.kind == MarkKind::wgmma) continue;
      const bool does = 2 * here[k][block].size() >= of_block[block].size();
      use.moved = !does && block != main && owned.count(block) != 0;
    }
  }
  for (const auto& [mark, each] : several_) marks[mark].per_token = each;
  for (Piece& piece : pieces) {
    for (Use& use : piece.uses) {
      const Mark& mark = marks[use.mark];
      const auto each = static_cast<uint32_t>(mark.per_token);
      use.tokens = mark.weak() ? static_cast<uint32_t>(copies_of(piece, mark.block))
                               : std::max(1u, use.instructions / each);
    }
  }
}

// A block of PTX that has no mark is still seen by its arithmetic: in the pieces that have most of
// its lines.
void Map::find_visits() {
  std::vector<bool> marked(blocks);
  for (uint32_t pc = 0; pc < kind_of.size(); ++pc) {
    if (mark_of[pc] != kNowhere) marked[block_of[pc]] = true;
  }
  struct Share {
    uint32_t piece;
    size_t lines;
    int copies;
    bool guarded;
  };
  std::map<uint32_t, std::vector<Share>> shares;  // by block
  for (uint32_t k = 0; k < pieces.size(); ++k) {
    std::map<uint32_t, std::map<int, int>> counts;
    std::set<uint32_t> free;
    for (uint32_t at = pieces[k].first; at < pieces[k].end; ++at) {
      const Op& op = program.ops[at];
      const auto block = block_of_line_.find(op.line);
      if (block == block_of_line_.end() || marked[block->second]) continue;
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
    mark_of_block[block] = static_cast<uint32_t>(marks.size());
    const auto first = std::find(block_of.begin(), block_of.end(), block) - block_of.begin();
    marks.push_back({MarkKind::visit, block, static_cast<uint32_t>(first)});
    for (const Share& share : all) {
      if (2 * share.lines < most) continue;
      const auto tokens = static_cast<uint32_t>(std::max(1, share.copies / least));
      pieces[share.piece].uses.push_back(
          {mark_of_block[block], 0, tokens, share.guarded, false, false});
    }
  }
}

}  // namespace sim::clock
