// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file keeps what a strong write hides. Who comes after an ordinary write, without order, is
// told of that write; a strong write says nothing to other strong accesses, so that earlier
// accesses which these race with have to stay on record: a plain read of a counter, before an
// atomic of the same block, races with the atomics of other blocks.
#include "sim/check/race_shadow.h"
#include "sim/exec/grid_state.h"

namespace sim {
namespace {

constexpr size_t kMostHidden = 4;

bool is_plain(const Stamp& s) { return (s.place & kScopeFlags) == 0; }

}  // namespace

// Says whether an access before the write `mine` races with somebody with whom `mine` does not. An
// atomic whose result is wanted has seen all atomics before: what its thread does next may follow
// from them.
bool Touch::hides(const Stamp& s, const Stamp& mine) const {
  if (!s.clock || (s.place & kReadOnlyLoad)) return false;
  if (is_plain(s)) return before(s, mine, false);
  return !order.reads_back && !before(s, mine, false);
}

void Touch::write(Granule& g, const Stamp& mine) {
  Stamp hidden[kMostHidden];
  size_t found = 0;
  auto look = [&](const Stamp& s, uint32_t flag) {
    if (found == kMostHidden || !hides(s, mine)) return;
    hidden[found] = s;
    hidden[found++].place |= flag;
  };
  if (order.scope != Scope::none) {
    look(g.write, kHiddenWrite);
    if (is_many(g)) {
      for (const Stamp& s : many(g)) look(s, s.place & kHiddenWrite ? kHiddenWrite : kHiddenRead);
    } else {
      look(g.read, kHiddenRead);
    }
  }
  drop_reads(g);
  g.write = mine;
  if (found == 0) return;
  const uint32_t index = make_many(hidden, found);
  g.read = Stamp{kManyReads, index + 1, me.block->grid->generation(owner()), 0};
}

// A strong read after a plain one of the same agent.
void Touch::hide_read(std::vector<Stamp>* set, Stamp plain) const {
  size_t hidden = 0;
  for (const Stamp& s : *set) hidden += (s.place & kHidden) != 0;
  if (hidden >= kMostHidden) return;
  plain.place |= kHiddenRead;
  set->push_back(plain);
}

bool Touch::before_hidden(const Stamp& s, const Stamp& mine, uint64_t at) const {
  if (before(s, mine, use == RaceUse::load)) return true;
  return order.acquire && race_acquires(me, order, at, owner(), s);
}

void Touch::read_hidden(Granule& g, const Stamp& mine, uint64_t at, uint32_t bytes) {
  if (!is_many(g)) return;
  for (const Stamp& s : many(g)) {
    if ((s.place & kHiddenWrite) && !before_hidden(s, mine, at)) conflict(s, mine, at, bytes);
  }
}

}  // namespace sim
