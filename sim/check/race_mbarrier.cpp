// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles barriers with phases: mbarrier and barrier.cluster.
#include <utility>

#include "sim/check/race_shadow.h"

namespace sim {
namespace {

bool of_cluster(const Form& f) { return f.op == Op::cluster_arrive || f.op == Op::cluster_wait; }

// An mbarrier instruction that names no scope has the scope of the block.
bool reaches_cluster(const Form& f) {
  return of_cluster(f) || f.scope >= static_cast<uint8_t>(Scope::cluster);
}

void narrow(Warp& w, const Inst& inst, unsigned lane, const char* what) {
  report_text(w, inst, Fault::narrow_scope, lane, 0, 0, what);
}

void tell_copied(const RaceWarp& r, uint32_t lanes, Knowledge* to) {
  for (uint32_t rest = r.copied.empty() ? 0 : lanes; rest; rest &= rest - 1) {
    for (const auto& [agent, clock] : r.copied[__builtin_ctz(rest)]) {
      for (int kind = 0; kind < kClockKinds; ++kind) {
        to->raise(static_cast<ClockKind>(kind), agent, clock);
      }
    }
  }
}

}  // namespace

RaceMbarrier* race_mbarrier(Block& owner) {
  if (!owner.races) return nullptr;
  auto b = std::make_unique<RaceMbarrier>();
  b->block = owner.races;
  for (SyncClock** clock : {&b->filling, &b->full, &b->far_filling, &b->far_full}) {
    *clock = race_clock(owner);
  }
  owner.races->mbarriers.push_back(std::move(b));
  return owner.races->mbarriers.back().get();
}

void race_mbarrier_touch(Warp& w, const Inst& inst, unsigned lane, uint32_t offset, RaceUse use,
                         Block& owner) {
  if (!w.race) return;
  uint64_t address[32];
  for (uint64_t& a : address) a = offset;
  race_access(w, inst, address, 1u << lane, 8, use, false, &owner);
}

// A relaxed arrival publishes nothing but what a fence before it has.
void race_mbarrier_release(RaceMbarrier* b, Warp& w, const Inst& inst, unsigned lane) {
  if (!b || !w.race) return;
  const Form& f = form_of(w, inst);
  const bool near = of_cluster(f) || w.race->block == b->block;
  if (f.has(kRelaxed)) {
    if (near) b->filling->known.join(w.race->known, kInitClock);
    if (near && w.race->fenced) b->filling->known.join(w.race->fence[reaches_cluster(f) ? 1 : 0]);
    return;
  }
  if (near) return race_release(w, b->filling);
  b->far_arrived = true;
  if (!reaches_cluster(f)) {
    narrow(w, inst, lane,
           "an arrival at the mbarrier of another block with the scope of the own block");
  }
  race_release(w, b->far_filling);
}

// Arrivals from another block are seen whatever the scopes: the hardware has them so.
void race_mbarrier_acquire(const RaceMbarrier* b, Warp& w, const Inst& inst, unsigned lane) {
  if (!b || !w.race) return;
  const Form& f = form_of(w, inst);
  if (f.has(kRelaxed)) {
    w.race->pending[reaches_cluster(f) ? 1 : 0].join(b->full->known);
    w.race->waits = true;
    return;
  }
  race_acquire(w, b->full);
  if (!b->far_completed) return;
  if (!reaches_cluster(f)) {
    narrow(w, inst, lane, "a wait for arrivals from another block with the scope of the own block");
  }
  race_acquire(w, b->far_full);
}

void race_mbarrier_phase(RaceMbarrier* b) {
  if (!b) return;
  std::swap(b->filling, b->full);
  std::swap(b->far_filling, b->far_full);
  b->far_completed = b->far_arrived;
  b->far_arrived = false;
  race_clear(b->filling);
  race_clear(b->far_filling);
}

void race_mbarrier_landed(RaceMbarrier* b, const Inst& inst, uint64_t address, uint64_t bytes,
                          Block* target) {
  if (b) race_async_landed(b->filling, inst, address, bytes, target);
}

void race_mbarrier_was_read(RaceMbarrier* b, const Inst& inst, uint64_t address, uint64_t bytes,
                            Block* source) {
  if (b) race_async_was_read(b->filling, inst, address, bytes, source);
}

void race_mbarrier_complete(RaceMbarrier* b) {
  if (b) race_async_complete(b->filling);
}

void race_copies_arrive(Warp& w, uint32_t lanes, RaceMbarrier* b) {
  if (!b || !w.race) return;
  tell_copied(*w.race, lanes, &b->filling->known);
  race_async_complete(b->filling);
  if (!b->filling->clock) return;
  if (w.race->copied.empty()) w.race->copied.resize(32);
  for (uint32_t rest = lanes; rest; rest &= rest - 1) {
    w.race->copied[__builtin_ctz(rest)][b->filling->agent] = b->filling->clock - 1;
  }
}

void race_copies_wait(Warp& w, uint32_t lanes) {
  if (w.race) tell_copied(*w.race, lanes, &w.race->known);
}

}  // namespace sim
