// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles mbarriers: phase, pending arrivals, bytes outstanding; and every misuse that
// the rules name. The state lives beside shared memory; the eight bytes hold an image that no
// program may touch.
#include <cstring>
#include <string>

#include "sim/check/race.h"
#include "sim/exec/async/async.h"
#include "sim/exec/async_marks.h"

namespace sim {
namespace {

// Returns an arrival's result: the phase it belongs to, and the arrivals that were pending.
uint64_t token(const Mbarrier& m) { return m.phase << 20 | m.pending; }

std::string at(uint32_t offset) { return "mbarrier at " + hex(offset); }

bool misuse(Warp& w, const Inst& i, unsigned lane, uint32_t offset, const std::string& what,
            Fault fault = Fault::mbarrier) {
  report_text(w, i, fault, lane, offset, 8, (at(offset) + ": " + what).c_str());
  return false;
}

// So many copies are remembered that nobody has waited for: one is told of.
constexpr size_t kMostUnseen = 32;

}  // namespace

std::string outstanding(int64_t tx) {
  if (tx == 0) return "no bytes outstanding";
  return std::to_string(tx < 0 ? -tx : tx) +
         (tx < 0 ? " bytes more than were expected" : " bytes outstanding");
}

Mbarrier* Async::find(Block& block, uint32_t offset) {
  auto& all = mbarriers_[block.rank];
  const auto it = all.find(offset);
  return it == all.end() ? nullptr : &it->second;
}

void Async::show(Block& block, uint32_t offset, const Mbarrier& m) {
  const uint64_t image = 0xB0B0000000000000ull | (m.phase & 0xFFFF) << 32 | m.pending;
  std::memcpy(block.shared + offset, &image, 8);
}

bool Async::init(Warp& w, const Inst& i, unsigned lane, Block& block, uint32_t offset,
                 uint32_t count) {
  if (count == 0 || count > kMostArrivals) {
    return misuse(w, i, lane, offset,
                  "an arrival count of " + std::to_string(count) + "; allowed: 1 to 1048575");
  }
  if (const Mbarrier* live = find(block, offset)) {
    // Between two phases nobody's arrival is lost.
    const bool rests = live->pending == live->expected && live->tx == 0;
    misuse(w, i, lane, offset, "initialised while it is live; mbarrier.inval would end it first",
           rests ? Fault::repeated_init : Fault::mbarrier_rule);
    if (w.stop) return false;
    const bool repeats = live->birth == &i && live->expected == count && live->phase == 0;
    if (rests && repeats && live->founder == &w) return true;
    report_unseen(*live, offset);
    mbarriers_[block.rank].erase(offset);
  }
  Mbarrier& m = mbarriers_[block.rank][offset];
  m.expected = m.pending = count;
  m.birth = &i;
  m.founder = &w;
  m.race = race_mbarrier(block);
  race_mbarrier_touch(w, i, lane, offset, RaceUse::store, block);
  mark_flag(block, offset, 8, kMarkMbarrier, true);
  show(block, offset, m);
  const uint8_t defined[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  for (uint32_t k = 0; k < 8; ++k) {
    block.shared_defined[(offset + k) / 64] |= static_cast<uint64_t>(defined[k])
                                               << ((offset + k) % 64);
  }
  return true;
}

bool Async::inval(Warp& w, const Inst& i, unsigned lane, Block& block, uint32_t offset) {
  if (!find(block, offset))
    return misuse(w, i, lane, offset, "not live: never initialised, or invalidated");
  race_mbarrier_touch(w, i, lane, offset, RaceUse::store, block);
  report_unseen(*find(block, offset), offset);
  mbarriers_[block.rank].erase(offset);
  mark_flag(block, offset, 8, kMarkMbarrier, false);
  return true;
}

void Async::end_overwritten(Block& block, uint32_t offset, uint32_t bytes) {
  auto& all = mbarriers_[block.rank];
  for (auto m = all.begin(); m != all.end();) {
    if (m->first >= offset + bytes || m->first + 8 <= offset) {
      ++m;
      continue;
    }
    report_unseen(m->second, m->first);
    mark_flag(block, m->first, 8, kMarkMbarrier, false);
    m = all.erase(m);
  }
}

// Completes the phase if nothing is missing.
bool Async::test(Mbarrier& m) {
  if (m.pending != 0 || m.tx != 0) return false;
  ++m.phase;
  race_mbarrier_phase(m.race);
  m.pending = m.expected;
  ++cluster_->events;
  return true;
}

bool Async::expect(Warp& w, const Inst& i, unsigned lane, Block& block, uint32_t offset,
                   int64_t bytes) {
  Mbarrier* m = find(block, offset);
  if (!m) return misuse(w, i, lane, offset, "not live: never initialised, or invalidated");
  if (bytes > 0) race_mbarrier_touch(w, i, lane, offset, RaceUse::load, block);
  m->tx += bytes;
  if (m->tx > kMostArrivals || m->tx < -kMostArrivals) {
    return misuse(w, i, lane, offset,
                  std::to_string(m->tx) + " bytes outstanding; allowed: -1048575 to 1048575");
  }
  if (bytes < 0) test(*m);  // complete_tx
  show(block, offset, *m);
  return true;
}

bool Async::arrive(Warp& w, const Inst& i, unsigned lane, Block& block, uint32_t offset,
                   uint32_t count, bool drop, bool may_complete, uint64_t* state) {
  Mbarrier* m = find(block, offset);
  if (!m) return misuse(w, i, lane, offset, "not live: never initialised, or invalidated");
  if (count == 0 || count > m->pending) {
    return misuse(
        w, i, lane, offset,
        std::to_string(count) + " arrivals where " + std::to_string(m->pending) + " are pending");
  }
  if (m->phase > 0 && m->observed < m->phase) {
    misuse(w, i, lane, offset,
           "an arrival in phase " + std::to_string(m->phase) +
               " before any wait has seen the end of phase " + std::to_string(m->phase - 1),
           Fault::unobserved_phase);
  }
  if (w.function->infos[i.info].form.op != Op::cp_mbarrier_arrive) {
    race_mbarrier_touch(w, i, lane, offset, RaceUse::load, block);
    race_mbarrier_release(m->race, w, i, lane);
  }
  if (state) *state = token(*m);
  if (drop) {
    m->expected -= count;
    if (m->expected == 0) {
      misuse(w, i, lane, offset, "the last arrival was dropped", Fault::mbarrier_rule);
      if (w.stop) return false;
    }
  }
  m->pending -= count;
  if (test(*m) && !may_complete) {
    misuse(w, i, lane, offset, "an arrival with .noComplete completes the phase",
           Fault::mbarrier_rule);
    if (w.stop) return false;
  }
  show(block, offset, *m);
  return true;
}

bool Async::add_pending(Warp& w, const Inst& i, unsigned lane, Block& block, uint32_t offset) {
  Mbarrier* m = find(block, offset);
  if (!m) return misuse(w, i, lane, offset, "not live: never initialised, or invalidated");
  if (m->pending == kMostArrivals) return misuse(w, i, lane, offset, "too many pending arrivals");
  ++m->pending;
  return true;
}

void Async::observe(Mbarrier& m) {
  m.observed = m.phase;
  std::erase_if(m.unseen, [&](const Delivery& d) { return d.phase < m.observed; });
}

// Says of copies that completed on the mbarrier that nobody has waited for them.
void Async::report_unseen(const Mbarrier& m, uint32_t offset) {
  for (const Delivery& d : m.unseen) {
    report_text(*d.warp, *d.inst, Fault::leaked_group, d.lane, offset, 8,
                ("nobody has waited for this copy: no wait has seen the end of phase " +
                 std::to_string(d.phase) + " of the " + at(offset))
                    .c_str());
  }
}

bool Async::complete_tx(Copy& c) {
  Mbarrier* m = find(*c.barrier_block, c.barrier);
  if (m) race_mbarrier_complete(m->race);
  if (m && m->unseen.size() < kMostUnseen) m->unseen.push_back({m->phase, c.warp, c.inst, c.lane});
  return expect(*c.warp, *c.inst, c.lane, *c.barrier_block, c.barrier, -int64_t{c.barrier_bytes});
}

}  // namespace sim
