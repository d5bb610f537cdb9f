// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/clock/walk/walk.h"

#include "sim/clock/walk/search.h"

namespace sim::clock {
namespace {

const Effect kHeldBack;

}  // namespace

Walk::Walk(const SassMap& map, const WarpTrace& trace)
    : map_(map), trace_(trace), track_(map, trace), cursors_(track_) {
  if (map.program.machine_code) {
    sass_blocks_ = map.paths->of(map, track_).sass_blocks;
    return;
  }
  for (const uint32_t block : track_.blocks) {
    if (map.sass_block_of_ptx_block[block] != kNowhere)
      sass_blocks_.push_back(map.sass_block_of_ptx_block[block]);
  }
}

uint32_t Walk::token_of(SassMap::Slot place) const {
  const AnchorUse& use = map_.sass_blocks[sass_blocks_[next_sass_block_ - 1]].uses[place.use];
  const auto each = static_cast<uint32_t>(map_.anchors[use.anchor].per_token);
  return bound_[starts_[place.use] + std::min(place.number / each, use.tokens - 1)];
}

const Effect* Walk::effect_of(uint32_t op) const {
  const SassMap::Slot place = map_.slot_of[op];
  const bool guarded = map_.program.ops[op].guarded;
  if (place.use == kNowhere) {
    const bool access = anchor_kind(map_.program.ops[op]) != AnchorKind::none;
    return access && guarded ? &kHeldBack : nullptr;
  }
  const AnchorUse& use = map_.sass_blocks[sass_blocks_[next_sass_block_ - 1]].uses[place.use];
  if (map_.anchors[use.anchor].weak()) return nullptr;
  const uint32_t token = token_of(place);
  if (token == kNowhere) return guarded ? &kHeldBack : nullptr;
  const Track::Token& t = track_.tokens[token];
  if (t.effect == kNowhere) return nullptr;
  return t.empty ? &kHeldBack : &trace_.effects[t.effect];
}

// The trace stops in the SASS block: the walk stops behind the last instruction that the trace has.
void Walk::cut(const SassBlock& sass_block) {
  uint32_t end = sass_block.first;
  for (uint32_t op = sass_block.first; op < sass_block.end; ++op) {
    const SassMap::Slot place = map_.slot_of[op];
    if (place.use != kNowhere && token_of(place) != kNowhere) end = op + 1;
  }
  end_ = end;
}

Walk::Step Walk::next() {
  while (at_ == end_) {
    if (next_sass_block_ == sass_blocks_.size()) return {};
    const SassBlock& sass_block = map_.sass_blocks[sass_blocks_[next_sass_block_++]];
    at_ = sass_block.first;
    end_ = sass_block.end;
    progress_.pass(map_, track_, sass_block, &cursors_, &bound_);
    cursors_.raise(progress_.base());
    starts_.clear();
    uint32_t start = 0;
    for (const AnchorUse& use : sass_block.uses) {
      starts_.push_back(start);
      start += use.tokens;
    }
    if (track_.cut && next_sass_block_ == sass_blocks_.size()) cut(sass_block);
  }
  const uint32_t op = at_++;
  return {op, effect_of(op)};
}

}  // namespace sim::clock
