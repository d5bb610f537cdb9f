// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles order through memory: releases, acquires and fences, by scope.
#include "sim/check/race_state.h"

namespace sim {
namespace {

int level_of(Scope scope) { return scope >= Scope::gpu ? 2 : static_cast<int>(scope) - 1; }

Locations& locations_of(RaceWarp& r, const Block* owner) {
  return owner ? owner->races->locations : r.block->grid->world->locations;
}

// Adds what a read of scope `level` finds at `from` to each level of `to`, or all of it to to[0].
void observe(RaceWarp& r, const Location& from, int level, Knowledge* to, bool by_level) {
  const RaceBlock& b = *r.block;
  if (from.cta_first == b.first) to[0].join(from.cta);
  if (level >= 1 && from.cluster_base == b.base) to[by_level ? 1 : 0].join(from.cluster);
  if (level >= 2) to[by_level ? 2 : 0].join(from.wide);
}

// Adds knowledge of this warp to a location: a level of `from` to whom it is meant for.
void leave(RaceWarp& r, Location* to, int level, const Knowledge& cta, const Knowledge& cluster,
           const Knowledge& wide) {
  const RaceBlock& b = *r.block;
  if (to->cta_first != b.first) to->cta.clear(0, 0);
  to->cta_first = b.first;
  to->cta.join(cta);
  if (level < 1) return;
  if (to->cluster_base != b.base) to->cluster.clear(0, 0);
  to->cluster_base = b.base;
  to->cluster.join(cluster);
  if (level < 2) return;
  to->wide.join(wide);
  // Another launch learns here too what was over when this one began.
  const RaceGrid& grid = *b.grid;
  if (grid.world->launches.size() > 1) {
    to->wide.raise(kGenericClock, grid.self->start_agent(), 1);
  }
}

void at_location(RaceWarp& r, Locations& all, uint64_t key, const Order& order) {
  const int level = level_of(order.scope);
  auto it = all.find(key);
  if (order.reads_back && it != all.end()) {
    if (order.acquire) {
      observe(r, it->second, level, &r.known, false);
    } else {
      observe(r, it->second, level, r.pending, true);
      r.waits = true;
    }
  }
  const bool writes = order.rmw || !order.reads_back;
  if (!writes) return;
  // Another value by a plain store ends what its location carried; an atomic carries it on.
  if (!order.rmw && it != all.end()) {
    all.erase(it);
    it = all.end();
  }
  if (!order.release && !r.fenced) return;
  Location& to = it == all.end() ? all[key] : it->second;
  if (order.release) {
    Knowledge now;
    r.publish(&now);
    leave(r, &to, level, now, now, now);
  } else {
    leave(r, &to, level, r.fence[0], r.fence[1], r.fence[2]);
  }
}

}  // namespace

bool race_acquires(const RaceWarp& me, const Order& order, uint64_t address, const Block* owner,
                   const Stamp& s) {
  const Locations& all = owner ? owner->races->locations : me.block->grid->world->locations;
  const auto it = all.find(address / 8);
  if (it == all.end()) return false;
  const int level = level_of(order.scope);
  const Location& from = it->second;
  auto knows = [&](const Knowledge& k) { return s.clock <= k.of(kGenericClock, s.agent); };
  if (from.cta_first == me.block->first && knows(from.cta)) return true;
  if (level >= 1 && from.cluster_base == me.block->base && knows(from.cluster)) return true;
  return level >= 2 && knows(from.wide);
}

void race_order(Warp& w, const Order& order, const uint64_t* address, uint32_t exec, Block* owner) {
  RaceWarp& r = *w.race;
  Locations& all = locations_of(r, owner);
  uint64_t last = ~0ull;
  for (uint32_t rest = exec; rest; rest &= rest - 1) {
    const uint64_t key = address[__builtin_ctz(rest)] / 8;
    if (key == last) continue;
    last = key;
    at_location(r, all, key, order);
  }
  if (order.release) ++r.clock;
}

void race_fence(Warp& w, const Inst& inst) {
  if (!w.race) return;
  RaceWarp& r = *w.race;
  const Form& f = w.function->infos[inst.info].form;
  auto show = [&](ClockKind kind) {
    r.known.show(kind);
    r.known.raise(kind, r.agent, r.clock);
  };
  if (f.detail & kFenceTensorMap) return;
  if (f.detail & (kFenceAsync | kFenceInit)) {
    const bool async = f.detail & kFenceAsync, all = f.space_count == 0;
    if (!async) show(kInitClock);
    if (async && (all || f.space() == Space::global)) show(kGlobalProxyClock);
    if (async && (all || f.space() != Space::global)) show(kSharedProxyClock);
    ++r.clock;
    return;
  }
  if (!f.scope) return;  // between aliases of an address
  const int level = level_of(static_cast<Scope>(f.scope));
  for (int k = 0; k <= level && r.waits; ++k) {
    r.known.join(r.pending[k]);
    r.pending[k].clear(0, 0);
  }
  for (int k = 0; k <= level; ++k) {
    r.fence[k].clear(0, 0);
    r.publish(&r.fence[k]);
  }
  r.fenced = true;
  ++r.clock;
}

}  // namespace sim
