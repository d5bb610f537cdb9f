// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/clock/walk/walk.h"

#include "sim/clock/walk/search.h"

namespace sim::clock {
namespace {

const Effect kHeldBack;

}  // namespace

Walk::Walk(const Map& map, const WarpTrace& trace)
    : map_(map), trace_(trace), track_(map, trace), cursors_(track_) {
  if (map.program.machine_code) {
    pieces_ = map.ways->of(map, track_).pieces;
    return;
  }
  for (const uint32_t block : track_.blocks) {
    if (map.piece_of_block[block] != kNowhere) pieces_.push_back(map.piece_of_block[block]);
  }
}

uint32_t Walk::token_of(Map::Place place) const {
  const Use& use = map_.pieces[pieces_[next_piece_ - 1]].uses[place.use];
  const auto each = static_cast<uint32_t>(map_.marks[use.mark].per_token);
  return bound_[starts_[place.use] + std::min(place.number / each, use.tokens - 1)];
}

const Effect* Walk::effect_of(uint32_t op) const {
  const Map::Place place = map_.place_of[op];
  const bool guarded = map_.program.ops[op].guarded;
  if (place.use == kNowhere) {
    const bool access = mark_kind(map_.program.ops[op]) != MarkKind::none;
    return access && guarded ? &kHeldBack : nullptr;
  }
  const Use& use = map_.pieces[pieces_[next_piece_ - 1]].uses[place.use];
  if (map_.marks[use.mark].weak()) return nullptr;
  const uint32_t token = token_of(place);
  if (token == kNowhere) return guarded ? &kHeldBack : nullptr;
  const Track::Token& t = track_.tokens[token];
  if (t.effect == kNowhere) return nullptr;
  return t.empty ? &kHeldBack : &trace_.effects[t.effect];
}

// The trace stops in the piece: the walk stops behind the last instruction that the trace has.
void Walk::cut(const Piece& piece) {
  uint32_t end = piece.first;
  for (uint32_t op = piece.first; op < piece.end; ++op) {
    const Map::Place place = map_.place_of[op];
    if (place.use != kNowhere && token_of(place) != kNowhere) end = op + 1;
  }
  end_ = end;
}

Walk::Step Walk::next() {
  while (at_ == end_) {
    if (next_piece_ == pieces_.size()) return {};
    const Piece& piece = map_.pieces[pieces_[next_piece_++]];
    at_ = piece.first;
    end_ = piece.end;
    progress_.pass(map_, track_, piece, &cursors_, &bound_);
    cursors_.raise(progress_.base());
    starts_.clear();
    uint32_t start = 0;
    for (const Use& use : piece.uses) {
      starts_.push_back(start);
      start += use.tokens;
    }
    if (track_.cut && next_piece_ == pieces_.size()) cut(piece);
  }
  const uint32_t op = at_++;
  return {op, effect_of(op)};
}

}  // namespace sim::clock
