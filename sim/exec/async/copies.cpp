// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles copies from issue to landing: when they read and write. schedule.cpp decides
// who waits for them.
#include <algorithm>
#include <cstring>

#include "sim/check/race.h"
#include "sim/exec/async/async.h"
#include "sim/exec/async/memory.h"
#include "sim/exec/async/reduce.h"
#include "sim/exec/async_marks.h"
#include "sim/exec/grid_state.h"

namespace sim {
namespace {

// A lazy copy that nothing forces still lands at some time: spinning warps must see it.
constexpr uint64_t kPatience = 60'000;
constexpr uint64_t kSoon = 3'000;

uint64_t bytes_of(const Copy& c) {
  uint64_t n = 0;
  for (const Piece& p : c.pieces) n += p.bytes;
  return n;
}

}  // namespace

Async::Async(Cluster* cluster, const Launch& launch)
    : cluster_(cluster), launch_(launch), mbarriers_(cluster->size) {}

void Async::start() {
  for (auto& m : mbarriers_) m.clear();
  groups_.assign(static_cast<size_t>(cluster_->size) * cluster_->blocks[0]->warps, Groups{});
  drop_copies();
  unseen_.clear();
  now_ = 0;
  next_ = ~0ull;
}

Async::Groups& Async::groups(const Warp& w) {
  return groups_[static_cast<size_t>(w.block->rank) * w.block->warps + w.index];
}
const Async::Groups& Async::groups(const Warp& w) const {
  return groups_[static_cast<size_t>(w.block->rank) * w.block->warps + w.index];
}

uint32_t Async::group_of(const Warp& w, unsigned lane, bool bulk) const {
  return bulk ? groups(w).bulk[lane] : groups(w).copies[lane];
}

void Async::commit(Warp& w, uint32_t exec, bool bulk) {
  Groups& g = groups(w);
  for (uint32_t rest = exec; rest; rest &= rest - 1) {
    ++(bulk ? g.bulk : g.copies)[__builtin_ctz(rest)];
  }
}

void Async::issue(std::unique_ptr<Copy> copy) {
  Copy& c = *copy;
  const AsyncPolicy policy = launch_.settings->async_policy;
  const uint64_t seed = next_random(cluster_->random);
  c.land_at = now_ + (policy == AsyncPolicy::random ? seed % kSoon : kPatience + seed % kPatience);
  c.fetch_at = c.land_at;
  if (policy == AsyncPolicy::random) {
    c.fetch_at = now_ + next_random(cluster_->random) % (c.land_at - now_ + 1);
  }
  watch_issue(c);
  look_at_marks(c);
  for (const Piece& p : c.pieces) {
    const auto from = static_cast<uint32_t>(p.from), to = static_cast<uint32_t>(p.to);
    if (c.source && !p.fill) mark_borrowed(*c.source, from, p.bytes, +1);
    if (c.target) mark_in_flight(*c.target, to, p.bytes, +1);
  }
  copies_.push_back(std::move(copy));
  if (policy == AsyncPolicy::eager) {
    settle(c, c.lanes);
    sweep();
    return;
  }
  next_ = std::min({next_, c.fetch_at, c.land_at});
}

// Reads the source; what nobody wrote stays unwritten at the destination.
bool Async::fetch(Copy& c) {
  if (c.fetched) return true;
  c.fetched = true;
  const uint64_t total = bytes_of(c);
  c.data.resize(total);
  c.defined.assign(total, 1);
  size_t at = 0;
  for (const Piece& p : c.pieces) {
    if (p.fill) {
      for (uint32_t k = 0; k < p.bytes; ++k) c.data[at + k] = c.fill[k % 8];
    } else if (c.source) {
      std::memcpy(c.data.data() + at, c.source->shared + p.from, p.bytes);
      read_defined(c.source->shared_defined, p.from, p.bytes, c.defined.data() + at);
    } else {
      read_global(*c.warp, *c.inst, p.from, p.bytes, c.data.data() + at, c.defined.data() + at);
    }
    at += p.bytes;
  }
  return true;
}

bool Async::deliver(Copy& c, Piece& p, size_t at) {
  if (c.target) {
    if (c.target->warps_done == c.target->warps) {
      report_text(*c.warp, *c.inst, Fault::dsmem_after_exit, p.lane, p.to, p.bytes,
                  "a copy lands in the shared memory of a block that has ended");
      return false;
    }
    uint8_t* to = c.target->shared + p.to;
    if (c.reduce != Atomic::none) {
      reduce(to, c.data.data() + at, p.bytes, c.type, c.reduce, c.flush);
      return true;
    }
    std::memcpy(to, c.data.data() + at, p.bytes);
    write_defined(c.target->shared_defined, p.to, p.bytes, c.defined.data() + at);
    return true;
  }
  write_global(*c.warp, *c.inst, p.to, p.bytes, c.data.data() + at, c.defined.data() + at,
               [&](uint8_t* to, const uint8_t* from, uint32_t bytes) {
                 if (c.reduce == Atomic::none)
                   std::memcpy(to, from, bytes);
                 else
                   reduce(to, from, bytes, c.type, c.reduce, c.flush);
               });
  return true;
}

// Writes the destination for the pieces of `lanes`, then completes the mbarrier.
bool Async::land(Copy& c, uint32_t lanes) {
  if (c.landed) return true;
  fetch(c);
  size_t at = 0;
  bool left = false, good = true;
  for (Piece& p : c.pieces) {
    const size_t here = at;
    at += p.bytes;
    if (p.done) continue;
    if (!(lanes >> p.lane & 1)) {
      left = true;
      continue;
    }
    good &= deliver(c, p, here);
    if (c.target && !c.by_thread) {
      mark_in_flight(*c.target, static_cast<uint32_t>(p.to), p.bytes, -1);
    }
    p.done = true;  // of a thread's copy, the mark stays until its lane has waited
  }
  if (left) return good;
  c.landed = true;
  ++cluster_->events;
  if (c.barrier_block) {
    const Mbarrier* m = find(*c.barrier_block, c.barrier);
    if (m) watch_landed(c, m->race);
  }
  if (c.barrier_block) good &= complete_tx(c);
  return good;
}

// The lanes have waited: the source may be used again.
void Async::release(Copy& c, uint32_t lanes) {
  if (c.released) return;
  c.lanes &= ~lanes;
  for (Piece& p : c.pieces) {
    if (!(lanes >> p.lane & 1)) continue;
    const auto from = static_cast<uint32_t>(p.from), to = static_cast<uint32_t>(p.to);
    if (c.source && !p.fill) mark_borrowed(*c.source, from, p.bytes, -1);
    if (c.by_thread) mark_in_flight(*c.target, to, p.bytes, -1);
  }
  c.released = c.lanes == 0;
}

// A cp.async.mbarrier.arrive comes after every earlier copy of its lanes, and after every earlier
// arrival of them. Who sees it has waited for all of those copies.
bool Async::settle_arrival(Copy& c) {
  bool good = true;
  const auto earlier = [&](const Copy& other) {
    return other.warp == c.warp && (other.lanes & c.lanes);
  };
  for (size_t k = 0; copies_[k].get() != &c; ++k) {
    Copy& other = *copies_[k];
    if (earlier(other) && other.arrives && !other.landed) good &= settle_arrival(other);
  }
  for (size_t k = 0; copies_[k].get() != &c; ++k) {
    Copy& other = *copies_[k];
    if (!earlier(other) || !other.by_thread) continue;
    land(other, c.lanes);
    if (const Mbarrier* m = find(*c.barrier_block, c.barrier)) watch_landed(other, m->race);
    release(other, c.lanes);
  }
  c.landed = c.released = true;
  ++cluster_->events;
  if (const Mbarrier* m = find(*c.barrier_block, c.barrier))
    race_copies_arrive(*c.warp, c.lanes, m->race);
  for (uint32_t rest = c.lanes; rest; rest &= rest - 1) {
    good &= arrive(*c.warp, *c.inst, static_cast<unsigned>(__builtin_ctz(rest)), *c.barrier_block,
                   c.barrier, 1, false, true, nullptr);
  }
  return good;
}

bool Async::settle(Copy& c, uint32_t lanes) {
  if (c.arrives) return settle_arrival(c);
  const bool good = land(c, lanes);
  // Nobody waits for the source of a copy that completes on an mbarrier.
  if (c.landed && c.barrier_block) release(c, c.lanes);
  return good;
}

}  // namespace sim
