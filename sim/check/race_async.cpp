// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file checks copies and products that run beside the warps. An access through the
// asynchronous proxy sees only what a fence has shown to the proxy; cp.async uses the generic
// proxy.
#include "sim/check/race_shadow.h"
#include "sim/exec/grid_state.h"

namespace sim {
namespace {

// One agent of each block is never known to anybody: its accesses are under way.
constexpr uint32_t kNever = 0xFFFFFFFF, kInFlight = 0;

uint32_t async_agent(const RaceBlock& b, uint32_t slot) {
  const uint32_t rank = (b.first - b.base) / b.grid->warps;
  return b.base + b.grid->cluster_blocks * (b.grid->warps + slot) + rank;
}

bool reduces(const Form& f) {
  return f.op == Op::bulk_reduce || f.op == Op::tensor_reduce || f.op == Op::red_async;
}

// A reduction's access to memory is strong: reductions do not race with each other.
uint32_t place_of(const Form& f, const Inst& i) {
  uint32_t place = i.info << 8;
  if (f.op != Op::cp_async) place |= kAsyncAccess;
  if (reduces(f)) place |= static_cast<uint32_t>(Scope::gpu);
  return place;
}

Stamp stamp_of(Touch& t, unsigned lane) {
  const Form& f = form_of(t.warp, t.inst);
  if (reduces(f)) t.order.scope = Scope::gpu;
  Stamp s = t.stamp;
  s.place = place_of(f, t.inst);
  s.lanes = lane < 32 ? 1u << lane : ~0u;
  return s;
}

// The stamp of what completes on an mbarrier.
Stamp stamp_of(SyncClock& clock, const Inst& inst) {
  RaceBlock& block = *clock.block;
  if (!clock.clock) {
    clock.agent = async_agent(block, 1 + block.async_agents++ % (kAsyncAgents - 1));
    clock.clock = 1;
  }
  const Form& f = block.grid->launch->function->infos[inst.info].form;
  return Stamp{clock.agent, clock.clock, place_of(f, inst), 0};
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
  const Stamp mine = stamp_of(t, lane);
  if (!t.has(address) && !t.has(address + bytes - 1)) return;
  const bool generic = !(mine.place & kAsyncAccess);
  const ClockKind proxy = owner ? kSharedProxyClock : kGlobalProxyClock;
  t.each(address, bytes, [&](Granule& g, uint64_t at, uint32_t size) {
    const Stamp& s = g.write;
    t.read_hidden(g, mine, at, size);
    if (!s.clock) return;
    // A product is the whole warp's: its lanes have met.
    const bool own = lane == kWholeWarp && s.agent == t.me.agent;
    const Stamp here = slice(s, static_cast<uint32_t>(at % kGranule), 1);
    if (!own && !t.before(here, mine, true)) return t.conflict(s, mine, at, size);
    if (generic || (s.place & kAsyncAccess) || !t.is_own(s)) return;
    if (s.clock <= t.me.known.of(proxy, s.agent)) return;
    report_race(t.grid(), RaceKind::missing_proxy_fence, mine, s, at, size, owner != nullptr);
  });
}

void race_async_operand(Warp& w, const Inst& inst, uint32_t offset) {
  const RaceWarp& r = *w.race;
  const Stamp& s = w.block->races->shadow[offset / kGranule].write;
  const auto& known = r.known.near[s.place & kAsyncAccess ? kGenericClock : kSharedProxyClock];
  const uint32_t index = s.agent - r.known.base;
  if (s.clock <= (index < known.size() ? known[index] : 0u)) return;
  race_async_read(w, inst, kWholeWarp, offset, kGranule, w.block);
}

void race_async_write(Warp& w, const Inst& inst, unsigned lane, uint64_t address, uint64_t bytes,
                      Block* owner) {
  if (!w.race) return;
  Touch t(w, inst, RaceUse::store, owner);
  const Stamp mine = stamp_of(t, lane);
  if (!owner && !t.world().borrowed.empty()) {
    race_write_borrowed(t.grid(), mine, address, address + bytes);
  }
  t.each(address, bytes, [&](Granule& g, uint64_t at, uint32_t size) {
    auto check = [&](const Stamp& s) {
      const Stamp here = slice(s, static_cast<uint32_t>(at % kGranule), 1);
      if (s.clock && !t.before(here, mine, false)) t.conflict(s, mine, at, size);
    };
    check(g.write);
    if (t.is_many(g)) {
      for (const Stamp& s : t.many(g)) check(s);
    } else {
      check(g.read);
    }
    if (owner) return;  // in shared memory the marks of what is in flight say more
    t.drop_reads(g);
    g.write = Stamp{async_agent(*t.me.block, kInFlight), kNever, mine.place, mine.lanes};
  });
}

void race_async_landed(Warp& w, const Inst& inst, unsigned lane, uint64_t address, uint64_t bytes,
                       Block* owner) {
  if (!w.race) return;
  Touch t(w, inst, RaceUse::store, owner);
  land(t, stamp_of(t, lane), address, bytes);
}

void race_async_landed(SyncClock* clock, const Inst& inst, uint64_t address, uint64_t bytes,
                       Block* owner) {
  if (!clock) return;
  Shadow shadow(*clock->block, owner);
  land(shadow, stamp_of(*clock, inst), address, bytes);
}

void race_async_was_read(Warp& w, const Inst& inst, unsigned lane, uint64_t address, uint64_t bytes,
                         Block* owner) {
  if (!w.race) return;
  Touch t(w, inst, RaceUse::load, owner);
  const Stamp s = stamp_of(t, lane);
  t.each(address, bytes, [&](Granule& g, uint64_t, uint32_t) { t.read(g, s); });
}

void race_async_was_read(SyncClock* clock, const Inst& inst, uint64_t address, uint64_t bytes,
                         Block* owner) {
  if (!clock) return;
  Shadow shadow(*clock->block, owner);
  const Stamp s = stamp_of(*clock, inst);
  // Whoever learns of this read has learnt of those that the mbarrier knows already.
  shadow.each(address, bytes, [&](Granule& g, uint64_t, uint32_t) {
    if (g.read.clock <= clock->known.of(kGenericClock, g.read.agent)) {
      g.read = s;
    } else {
      shadow.add_read(g, s);
    }
  });
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
