// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Copies land when somebody waits for their group, when their time has come, or when nobody can run
// without them. This file also handles the copies that are left over when a block ends.
#include <algorithm>
#include <string>

#include "sim/check/race.h"
#include "sim/exec/async/async.h"
#include "sim/exec/grid_state.h"

namespace sim {

bool Async::wait_copies(Warp& w, uint32_t exec, const uint32_t* newest, bool everything) {
  const Groups& g = groups(w);
  bool good = true;
  const auto covered = [&](const Copy& c) {
    uint32_t done = 0;
    for (uint32_t rest = exec & c.lanes; rest; rest &= rest - 1) {
      const int l = __builtin_ctz(rest);
      if (everything || c.group[l] + newest[l] < g.copies[l]) done |= 1u << l;
    }
    return done;
  };
  // Arrivals behind copies that are all covered have happened too.
  uint32_t open = ~exec;  // lanes with a copy that is not covered
  for (size_t k = 0; k < copies_.size(); ++k) {
    Copy& c = *copies_[k];
    if (c.warp != &w) continue;
    if (c.by_thread) open |= c.lanes & ~covered(c);
    if (c.arrives && !c.landed && !(c.lanes & open)) good &= settle_arrival(c);
  }
  race_copies_wait(w, exec);
  for (auto& c : copies_) {
    if (!c->by_thread || c->warp != &w) continue;
    const uint32_t done = covered(*c);
    if (!done) continue;
    good &= land(*c, done);
    watch_waited(*c, done, false);
    release(*c, done);
  }
  sweep();
  return good;
}

bool Async::wait_bulk(Warp& w, uint32_t exec, const uint32_t* newest, bool read_only) {
  const Groups& g = groups(w);
  bool good = true;
  for (auto& c : copies_) {
    if (!c->in_group || c->warp != &w) continue;
    const unsigned lane = c->lane;
    if (!(exec >> lane & 1) || c->group[lane] + newest[lane] >= g.bulk[lane]) continue;
    if (read_only) {
      fetch(*c);
    } else {
      good &= land(*c, ~0u);
      c->waited = true;
    }
    watch_waited(*c, 1u << lane, read_only);
    release(*c, c->lanes);
  }
  if (!read_only) {
    std::erase_if(unseen_, [&](const auto& c) {
      const unsigned lane = c->lane;
      if (c->warp != &w || !(exec >> lane & 1)) return false;
      if (c->group[lane] + newest[lane] >= g.bulk[lane]) return false;
      watch_waited(*c, 1u << lane, false);
      return true;
    });
  }
  sweep();
  return good;
}

const Copy* Async::find_copy(const Block& block, uint32_t offset, uint32_t bytes, bool writes,
                             unsigned* lane) const {
  for (const auto& c : copies_) {
    if ((writes ? c->target : c->source) != &block) continue;
    for (const Piece& p : c->pieces) {
      const uint64_t at = writes ? p.to : p.from;
      if (at >= offset + bytes || offset >= at + p.bytes) continue;
      *lane = p.lane;
      return c.get();
    }
  }
  return nullptr;
}

void Async::sweep() {
  std::erase_if(copies_, [this](auto& c) {
    if (!c->landed || !c->released) return false;
    race_give_back(*c);
    if (c->in_group && !c->waited && !c->target && c->warp->race) {
      c->data = c->defined = {};
      unseen_.push_back(std::move(c));
    }
    return true;
  });
  next_ = ~0ull;
  for (const auto& c : copies_) {
    if (!c->landed) next_ = std::min({next_, c->fetched ? c->land_at : c->fetch_at, c->land_at});
  }
}

void Async::tick(uint64_t executed) {
  now_ = executed;
  if (now_ < next_) return;
  for (size_t k = 0; k < copies_.size(); ++k) {
    Copy& c = *copies_[k];
    if (!c.landed && c.fetch_at <= now_ && !c.arrives) fetch(c);
    if (!c.landed && c.land_at <= now_) settle(c, ~0u);
  }
  sweep();
}

bool Async::land_one() {
  // A copy that completes a barrier may wake somebody; a copy's own warp waits for the others.
  std::vector<Copy*> able;
  for (auto& c : copies_) {
    if (!c->landed && (c->barrier_block || c->arrives)) able.push_back(c.get());
  }
  if (able.empty()) return false;
  settle(*able[next_random(cluster_->random) % able.size()], ~0u);
  sweep();
  return true;
}

bool Async::block_ends(Block& block, Warp& last) {
  bool good = true;
  for (const auto& [offset, m] : mbarriers_[block.rank]) {
    report_unseen(m, offset);
    if (m.tx == 0) continue;
    const std::string text = "the block ends while the mbarrier at " + hex(offset) + " has " +
                             outstanding(m.tx) + ": expect_tx and the copies disagree";
    report_text(last, *m.birth, Fault::transactions, 0, offset, 8, text.c_str());
  }
  for (auto& c : copies_) {
    const bool reads = c->source == &block && !c->released;
    const bool own = c->warp->block == &block && c->by_thread && !c->released;
    const bool writes = c->target == &block && !c->landed;
    if (c->arrives || (!reads && !own && !writes)) continue;
    report_text(*c->warp, *c->inst, reads ? Fault::unread_source : Fault::leaked_group, c->lane, 0,
                0,
                reads ? "the block ends while this copy may still read its shared memory: no "
                        "cp.async.bulk.wait_group covers it"
                : own ? "the block ends before anybody has waited for this copy"
                      : "the block ends while this copy is under way to its shared memory");
    if (c->source == &block) fetch(*c);
    if (writes) c->landed = c->released = true;
  }
  sweep();
  return good && !launch_.stops(cluster_->linear);
}

void Async::finish() {
  for (auto& c : copies_) {
    if (!c->landed && !c->target && !launch_.stops(cluster_->linear)) land(*c, ~0u);
  }
  drop_copies();
}

void Async::drop_copies() {
  for (const auto& c : copies_) race_give_back(*c);
  copies_.clear();
}

}  // namespace sim
