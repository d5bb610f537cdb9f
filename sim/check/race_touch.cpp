// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles the general case of an access: several readers, lanes of one warp, accesses
// that are strong on both sides.
#include <algorithm>
#include <cstring>

#include "sim/check/race_shadow.h"

namespace sim {
namespace {

constexpr size_t kMostFarReaders = 4;

Scope scope_of(const Stamp& s) { return static_cast<Scope>(s.place & kScopeFlags); }

}  // namespace

Touch::Touch(Warp& w, const Inst& i, RaceUse u, Block* o)
    : Shadow(*w.race->block, o),
      me(*w.race),
      warp(w),
      inst(i),
      use(u),
      order(w.function->orders[i.info]),
      known(me.known.near[kGenericClock].data()),
      base(me.known.base),
      count(static_cast<uint32_t>(me.known.near[kGenericClock].size())),
      met(me.known.of(kGenericClock, me.agent)) {
  stamp.agent = me.agent;
  stamp.clock = me.clock;
  stamp.place = i.info << 8 | static_cast<uint32_t>(order.scope);
  if (order.read_only) stamp.place |= kReadOnlyLoad;
}

// Lanes of this warp: a full meeting, a partial one, or the same lane.
bool Touch::lanes_before(const Stamp& s, const Stamp& mine, bool read_after_write) const {
  if (s.clock <= met) return true;
  // A lane gives an mbarrier up for its warp: a use by another lane comes before, or finds no live
  // mbarrier. Libraries count on it.
  if (warp.function->infos[inst.info].form.op == Op::mbarrier_inval) return true;
  if (s.lanes == mine.lanes && !((s.place ^ mine.place) & kAffine)) {
    const bool single = (s.place & kAffine) || !(s.lanes & (s.lanes - 1));
    if (single || use == RaceUse::load) return true;
  }
  if ((s.place | mine.place) & kAffine) return false;
  // A lane that took part in the store of one value may read it.
  if (read_after_write && !(mine.lanes & ~s.lanes)) return true;
  for (uint32_t left = mine.lanes; left; left &= left - 1) {
    const auto l = static_cast<uint32_t>(__builtin_ctz(left));
    for (uint32_t rest = s.lanes & ~(1u << l); rest; rest &= rest - 1) {
      const auto m = static_cast<uint32_t>(__builtin_ctz(rest));
      if (me.lanes.empty() || me.lanes[l * 32 + m] < s.clock) return false;
    }
  }
  return true;
}

bool Touch::before(const Stamp& s, const Stamp& mine, bool read_after_write) const {
  if (s.agent == me.agent ? lanes_before(s, mine, read_after_write)
                          : s.clock <= me.known.of(kGenericClock, s.agent)) {
    return true;
  }
  if (!is_own(s)) {
    const RaceLaunch* const other = grid().world->launch_of(s.agent);
    return !other || race_knows(me, *other);
  }
  // fence.mbarrier_init shows what it names, to those who use it.
  const Op op = warp.function->infos[s.place >> 8].form.op;
  return op == Op::mbarrier_init && read_after_write && s.clock <= me.known.of(kInitClock, s.agent);
}

bool Touch::both_strong(const Stamp& s) const {
  const Scope least = std::min(scope_of(s), order.scope);
  if (least >= Scope::gpu) return true;
  if (least == Scope::none || !is_own(s)) return false;
  const RaceGrid& grid = *me.block->grid;
  const uint32_t mine = me.agent - grid.self->origin, other = s.agent - grid.self->origin;
  if (other / grid.stride != mine / grid.stride) return false;
  if (least == Scope::cluster) return true;
  return mine % grid.stride / grid.warps == other % grid.stride / grid.warps;
}

// Two patterns of lanes of this warp that are not ordered have to be looked at cell by cell.
bool Touch::needs_cells(const Granule& g, const Stamp& mine) {
  auto differs = [&](const Stamp& s) {
    if (!s.clock || s.agent != me.agent || s.clock <= met) return false;
    if (!((s.place | mine.place) & kAffine)) return false;
    return s.lanes != mine.lanes || ((s.place ^ mine.place) & kAffine);
  };
  if (differs(g.write)) return true;
  if (!is_many(g)) return differs(g.read);
  const auto& set = many(g);
  return std::any_of(set.begin(), set.end(), differs);
}

void Touch::slow(Granule& g, uint32_t offset, uint32_t length, const Stamp& mine, uint64_t at) {
  forget_stale(g);
  const bool all = length == kGranule;
  if (all && !is_split(g) && !needs_cells(g, mine)) return cell(g, mine, at, length);
  split_for(g, offset, length, mine);
  const uint32_t size = kGranule / parts(g);
  for (uint32_t k = offset / size; k < (offset + length) / size; ++k) {
    cell(cells(g)[k], slice(mine, k * size, size), at + k * size - offset, size);
  }
  if (all && use == RaceUse::store && !(mine.place & kAffine)) unite(g, mine);
}

void Touch::cell(Granule& g, const Stamp& mine, uint64_t at, uint32_t bytes) {
  const bool load = use == RaceUse::load;
  const Stamp last = g.write;
  if (load && last.clock && order.read_only && is_own(last)) {
    written_read_only(last, mine, at, bytes);
  }
  if (!load && twice(g, mine, at, bytes)) return;
  if (last.clock && !before(last, mine, load)) conflict(last, mine, at, bytes);
  if (load) {
    read_hidden(g, mine, at, bytes);
    return read(g, mine);
  }
  auto check = [&](const Stamp& s) {
    if (!s.clock) return;
    if ((s.place & kReadOnlyLoad) && is_own(s)) {
      written_read_only(s, mine, at, bytes);
    } else if (!(s.place & kHidden ? before_hidden(s, mine, at) : before(s, mine, false))) {
      conflict(s, mine, at, bytes);
    }
  };
  if (is_many(g)) {
    for (const Stamp& s : many(g)) check(s);
  } else {
    check(g.read);
  }
  write(g, mine);
}

// Readers of other clusters can hardly be ordered before the next writer one by one. A strong one
// is the first to go: it races with fewer writers.
void Touch::forget_some(std::vector<Stamp>* set) const {
  size_t others = 0, oldest = 0, strong = 0;
  for (size_t k = 0; k < set->size(); ++k) {
    const Stamp& s = (*set)[k];
    if (!is_far(s) || (s.place & kHidden)) continue;
    ++others;
    oldest = k;
    if (scope_of(s) != Scope::none) strong = k + 1;
  }
  if (others < kMostFarReaders) return;
  set->erase(set->begin() + static_cast<std::ptrdiff_t>(strong ? strong - 1 : oldest));
}

void Touch::read(Granule& g, const Stamp& mine) {
  // A newer read of one agent stands for its older one, or lanes are added up.
  auto renew = [&](Stamp& s) {
    Stamp next = mine;
    if (!lanes_before(s, mine, false)) next.lanes |= s.lanes;
    if (scope_of(s) < order.scope && s.clock == mine.clock) next.place = s.place;
    s = next;
  };
  // A strong read does not stand for a plain one.
  auto stays = [&](const Stamp& s) {
    const bool same = s.agent == mine.agent && s.clock == mine.clock;
    return scope_of(s) == Scope::none && order.scope != Scope::none && !same;
  };
  if (!g.read.clock) {
    g.read = mine;
  } else if (is_many(g)) {
    auto& set = many(g);
    for (Stamp& s : set) {
      if (s.agent != me.agent || (s.place & kHidden)) continue;
      const Stamp old = s;
      renew(s);
      std::swap(s, set.front());  // the next read of this warp finds it there
      if (stays(old)) hide_read(&set, old);
      return;
    }
    const bool far = std::all_of(set.begin(), set.end(), [&](const Stamp& s) {
      return is_far(s) && !(s.place & kHidden) && scope_of(s) == order.scope;
    });
    if (far && set.size() == kMostFarReaders && me.known.far.empty()) {
      std::rotate(set.begin(), set.end() - 1, set.end());
      set.front() = mine;
      return;
    }
    std::erase_if(set, [&](const Stamp& s) {
      return !(s.place & kHidden) && !stays(s) && before(s, mine, false);
    });
    forget_some(&set);
    set.insert(set.begin(), mine);
    if (set.size() > 1) return;
    drop_reads(g);
    g.read = mine;
  } else if (g.read.agent == me.agent && !stays(g.read)) {
    renew(g.read);
  } else if (before(g.read, mine, false) && !stays(g.read)) {
    g.read = mine;
  } else {
    const bool hidden = g.read.agent == me.agent;
    Stamp both[] = {mine, g.read};
    if (hidden) both[1].place |= kHiddenRead;
    const uint32_t index = make_many(both, 2);
    g.read = Stamp{kManyReads, index + 1, me.block->grid->generation(owner()), 0};
  }
}

bool Touch::same_values(uint32_t lane, uint32_t other) const {
  const Form& f = warp.function->infos[inst.info].form;
  if (f.op != Op::st) return false;
  const uint32_t bytes = type_bytes(f.type());
  const uint32_t cell_bytes = bytes == 8 ? 8 : 4;
  for (uint32_t k = 0; k < f.vector; ++k) {
    const uint16_t slot = warp.function->lists[inst.aux + k];
    const uint8_t* const values = warp.regs + slot * static_cast<size_t>(kSlotBytes);
    if (std::memcmp(values + lane * cell_bytes, values + other * cell_bytes, bytes)) return false;
  }
  return true;
}

// Lanes of one store that write the same bytes: fine if they write the same.
bool Touch::twice(Granule& g, const Stamp& mine, uint64_t at, uint32_t bytes) {
  const Stamp last = g.write;
  const bool here = last.agent == me.agent && last.clock == me.clock && last.place == mine.place;
  if (!here || use != RaceUse::store || (mine.place & kAffine) || !address) return false;
  const auto lane = static_cast<uint32_t>(__builtin_ctz(mine.lanes));
  for (uint32_t rest = last.lanes & done & ~mine.lanes; rest; rest &= rest - 1) {
    const auto m = static_cast<uint32_t>(__builtin_ctz(rest));
    if (address[m] != address[lane]) continue;
    if (!same_values(lane, m)) {
      conflict(last, mine, at, bytes);
      g.write = mine;
    }
    g.write.lanes |= last.lanes | mine.lanes;
    return true;
  }
  return false;
}

void Touch::written_read_only(const Stamp& s, const Stamp& mine, uint64_t at, uint32_t bytes) {
  report_race(grid(), RaceKind::nc_written, mine, s, at, bytes, owner() != nullptr);
}

void Touch::conflict(const Stamp& s, const Stamp& mine, uint64_t at, uint32_t bytes) {
  if (both_strong(s)) return;
  const auto offset = static_cast<uint32_t>(at % kGranule);
  Stamp other = slice(s, offset, 1), now = slice(mine, offset, 1);
  if (s.agent == me.agent) {  // the two parties are two lanes
    if (other.lanes & ~now.lanes) {
      other.lanes &= ~now.lanes;
    } else {
      now.lanes &= ~(other.lanes & (0u - other.lanes));
    }
  }
  report_race(grid(), RaceKind::race, now, other, at, bytes, owner() != nullptr);
}

}  // namespace sim
