// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file reports copies to the race check. At the issue, the bytes that a copy reads must have
// been written before, and the bytes that it writes must not be in use. When somebody has waited,
// the access happened then, for the lane that waited (groups) or for all who acquire the mbarrier.
//
// cp.async reads and writes like its thread. Bulk copies go through the asynchronous proxy.
#include <algorithm>

#include "sim/check/race.h"
#include "sim/exec/async/async.h"

namespace sim {
namespace {

struct Range {
  uint64_t begin, end;
};

// Pieces of a copy put together where they touch; `target`: where they go, else where they are
// from.
std::vector<Range> ranges(const Copy& c, bool target) {
  std::vector<Range> all;
  bool in_order = true;
  for (const Piece& p : c.pieces) {
    if (!target && p.fill) continue;
    const uint64_t begin = target ? p.to : p.from;
    if (!all.empty() && all.back().end == begin) {
      all.back().end += p.bytes;
      continue;
    }
    in_order &= all.empty() || all.back().end < begin;
    all.push_back({begin, begin + p.bytes});
  }
  if (in_order) return all;
  std::sort(all.begin(), all.end(), [](Range a, Range b) { return a.begin < b.begin; });
  std::vector<Range> merged;
  for (const Range& r : all) {
    if (!merged.empty() && merged.back().end >= r.begin)
      merged.back().end = std::max(merged.back().end, r.end);
    else
      merged.push_back(r);
  }
  return merged;
}

// An access of one lane to pieces of 16 bytes and, at the ends, of less.
void access(const Copy& c, unsigned lane, Range r, RaceUse use, Block* owner) {
  while (r.begin < r.end) {
    uint32_t size = 16;
    while (r.begin % size || r.begin + size > r.end) size /= 2;
    uint64_t address[32];
    for (uint64_t& a : address) a = r.begin;
    race_access(*c.warp, *c.inst, address, 1u << lane, size, use, false, owner);
    r.begin += size;
  }
}

}  // namespace

void Async::watch_issue(const Copy& c) {
  if (!c.warp->race || c.arrives) return;
  race_borrow(c);
  if (c.by_thread) {
    for (const Piece& p : c.pieces) {
      if (!p.fill) race_async_read(*c.warp, *c.inst, p.lane, p.from, p.bytes, nullptr);
      race_async_write(*c.warp, *c.inst, p.lane, p.to, p.bytes, c.target);
    }
    return;
  }
  for (const Range& r : ranges(c, false)) {
    race_async_read(*c.warp, *c.inst, c.lane, r.begin, r.end - r.begin, c.source);
  }
  for (const Range& r : ranges(c, true)) {
    race_async_write(*c.warp, *c.inst, c.lane, r.begin, r.end - r.begin, c.target);
  }
}

// It completes an mbarrier.
void Async::watch_landed(Copy& c, RaceMbarrier* barrier) {
  if (!c.warp->race || c.recorded) return;
  c.recorded = true;
  for (const Range& r : ranges(c, false)) {
    race_mbarrier_was_read(barrier, *c.inst, r.begin, r.end - r.begin, c.source);
  }
  for (const Range& r : ranges(c, true)) {
    race_mbarrier_landed(barrier, *c.inst, r.begin, r.end - r.begin, c.target);
  }
}

// A lane has waited for its group.
void Async::watch_waited(Copy& c, uint32_t lanes, bool read_only) {
  if (!c.warp->race) return;
  if (c.by_thread) {
    if (c.recorded) return;
    for (const Piece& p : c.pieces) {
      if (!(lanes >> p.lane & 1)) continue;
      if (!p.fill) race_async_was_read(*c.warp, *c.inst, p.lane, p.from, p.bytes, nullptr);
      access(c, p.lane, {p.to, p.to + p.bytes}, RaceUse::store, c.target);
    }
    return;
  }
  if (!c.released) {
    for (const Range& r : ranges(c, false)) access(c, c.lane, r, RaceUse::load, c.source);
  }
  if (read_only) return;
  for (const Range& r : ranges(c, true)) {
    race_async_landed(*c.warp, *c.inst, c.lane, r.begin, r.end - r.begin, c.target);
  }
}

}  // namespace sim
