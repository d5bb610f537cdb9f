// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A copy that starts may read and write from then on. This file finds what uses the same bytes of
// shared memory.
#include <algorithm>

#include "sim/exec/async/async.h"
#include "sim/exec/async_marks.h"
#include "sim/exec/grid_state.h"
#include "sim/exec/wgmma.h"

namespace sim {
namespace {

bool only_borrowed(const Block& block, uint32_t offset, uint32_t bytes) {
  const uint16_t marks = marks_of(block, offset, bytes);
  return (marks & kMarkBorrowed) && !(marks & ~kMarkBorrowed);
}

}  // namespace

bool Async::is_source(const Block& block, uint32_t offset, uint32_t bytes) const {
  for (const auto& c : copies_) {
    if (c->source != &block || c->released) continue;
    for (const Piece& p : c->pieces) {
      if (!p.fill && p.from < offset + bytes && p.from + p.bytes > offset) return true;
    }
  }
  return wgmma_reads(block, offset, bytes);
}

// From here on the copy may read and write at any time: does anything else use these bytes?
void Async::look_at_marks(const Copy& c) const {
  if (!launch_.view.check_async) return;
  bool read = false;
  if (c.target && c.target->marked && !c.pieces.empty()) {
    uint64_t low = ~0ull, high = 0;
    for (const Piece& p : c.pieces) {
      low = std::min(low, p.to);
      high = std::max(high, p.to + p.bytes);
    }
    read = is_source(*c.target, static_cast<uint32_t>(low), static_cast<uint32_t>(high - low));
  }
  for (const Piece& p : c.pieces) {
    const auto from = static_cast<uint32_t>(p.from), to = static_cast<uint32_t>(p.to);
    bool good = true;
    if (c.source && !p.fill && c.source->marked) {
      good = check_marks(*c.warp, *c.inst, p.lane, *c.source, from, p.bytes, false);
    }
    // Reductions may be under way to the same bytes.
    if (good && c.target && c.target->marked && c.reduce == Atomic::none &&
        (!only_borrowed(*c.target, to, p.bytes) || (read && is_source(*c.target, to, p.bytes)))) {
      good = check_marks(*c.warp, *c.inst, p.lane, *c.target, to, p.bytes, true);
    }
    if (!good) return;
  }
}

}  // namespace sim
