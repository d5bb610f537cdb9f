// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Copies and products that go through the asynchronous proxy.
#include "sim/check/race_shadow.h"

namespace sim {
namespace {

Stamp async_stamp(const Touch& t, unsigned lane) {
  Stamp s = t.stamp;
  s.place |= kAsyncAccess;
  s.lanes = 1u << lane;
  return s;
}

void land(Shadow& shadow, const Stamp& s, uint64_t address, uint64_t bytes) {
  shadow.each(address, bytes, [&](Granule& g, uint64_t, uint32_t) {
    shadow.drop_reads(g);
    g.write = s;
  });
}

}  // namespace

void race_async_read(Warp& w, const Inst& inst, unsigned lane, uint64_t address, uint64_t bytes,
                     Block* owner) {
  if (!w.race) return;
  Touch t(w, inst, RaceUse::load, owner);
  const Stamp mine = async_stamp(t, lane);
  const ClockKind proxy = owner ? kSharedProxyClock : kGlobalProxyClock;
  t.each(address, bytes, [&](Granule& g, uint64_t at, uint32_t size) {
    const Stamp& s = g.write;
    if (!s.clock) return;
    const Stamp here = slice(s, static_cast<uint32_t>(at % kGranule), 1);
    if (!t.before(here, mine, true)) return t.conflict(s, mine, at, size);
    if ((s.place & kAsyncAccess) || s.clock <= t.me.known.of(proxy, s.agent)) return;
    report_race(t.grid(), RaceKind::missing_proxy_fence, mine, s, at, size, owner != nullptr);
  });
}

void race_async_write(Warp& w, const Inst& inst, unsigned lane, uint64_t address, uint64_t bytes,
                      Block* owner) {
  if (!w.race) return;
  Touch t(w, inst, RaceUse::store, owner);
  const Stamp mine = async_stamp(t, lane);
  t.each(address, bytes, [&](Granule& g, uint64_t at, uint32_t size) {
    auto check = [&](const Stamp& s) {
      const Stamp here = slice(s, static_cast<uint32_t>(at % kGranule), 1);
      if (s.clock && !t.before(here, mine, false)) t.conflict(s, mine, at, size);
    };
    check(g.write);
    if (!t.is_many(g)) return check(g.read);
    for (const Stamp& s : t.many(g)) check(s);
  });
}

void race_async_landed(Warp& w, const Inst& inst, unsigned lane, uint64_t address, uint64_t bytes,
                       Block* owner) {
  if (!w.race) return;
  Touch t(w, inst, RaceUse::store, owner);
  land(t, async_stamp(t, lane), address, bytes);
}

void race_async_landed(SyncClock* clock, const Inst& inst, uint64_t address, uint64_t bytes,
                       Block* owner) {
  if (!clock) return;
  RaceBlock& block = *clock->block;
  const RaceGrid& grid = *block.grid;
  if (!clock->clock) {
    const uint32_t rank = (block.first - block.base) / grid.warps;
    const uint32_t slot = block.async_agents++ % kAsyncAgents;
    clock->agent = block.base + grid.cluster_blocks * (grid.warps + slot) + rank;
    clock->clock = 1;
  }
  Shadow shadow(block, owner);
  land(shadow, Stamp{clock->agent, clock->clock, inst.info << 8 | kAsyncAccess, 0}, address, bytes);
}

// With the fence between the proxies that every completion includes.
void race_async_complete(SyncClock* clock) {
  if (!clock || !clock->clock) return;
  for (int kind = 0; kind < kClockKinds; ++kind) {
    clock->known.raise(static_cast<ClockKind>(kind), clock->agent, clock->clock);
  }
  ++clock->clock;
}

}  // namespace sim
