// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles accesses of a warp against the shadow. Nearly all of them find their granules
// whole and the last accesses known: that is decided here; the rest is check/race_shadow.cpp's.
#include "sim/check/race_shadow.h"
#include "sim/exec/grid_state.h"

namespace sim {
namespace {

inline bool known_before(const Touch& t, const Stamp& s) {
  const uint32_t index = s.agent - t.base;
  return s.clock <= (index < t.count ? t.known[index] : 0u);
}

inline bool same_lanes(const Stamp& a, const Stamp& b) {
  return a.agent == b.agent && a.lanes == b.lanes && !((a.place ^ b.place) & kAffine);
}

inline bool one_lane_each(const Stamp& s) {
  return (s.place & kAffine) || !(s.lanes & (s.lanes - 1));
}

// The last read is this warp's too: of the same lanes, or of lanes that may be added to it.
inline bool again(const Touch& t, Stamp& s, const Stamp& mine) {
  if ((s.place ^ mine.place) & (kScopeFlags | kHidden)) return false;
  if (same_lanes(s, mine)) {
    s = mine;
    return true;
  }
  const bool one_clock = s.agent == mine.agent && s.clock == mine.clock;
  if (!one_clock || ((s.place | mine.place) & kAffine) || !t.me.lanes.empty()) return false;
  s.lanes |= mine.lanes;
  return true;
}

// Through the read-only cache: whoever writes later is wrong whatever the order, so that one such
// read is on record is enough.
inline bool read_only_again(const Touch& t, const Granule& g) {
  return t.order.read_only && !g.write.clock && g.read.clock && !t.is_many(g) &&
         (g.read.place & kReadOnlyLoad) && t.is_own(g.read);
}

// A strong write does not stand for the ordinary accesses before it.
inline bool hides_plain(const Granule& g) {
  return (g.write.clock && !(g.write.place & kScopeFlags)) ||
         (g.read.clock && !(g.read.place & kScopeFlags));
}

// Handles an access by `mine` to a whole granule, or a whole cell of one. Returns false if the
// access takes the general case.
inline __attribute__((always_inline)) bool quick(Touch& t, Granule& g, const Stamp& mine) {
  if (read_only_again(t, g)) return true;
  if (!known_before(t, g.write) && !same_lanes(g.write, mine)) return false;
  if (t.use == RaceUse::load) {
    if (g.write.clock && t.order.read_only) return false;
    if (known_before(t, g.read)) {
      g.read = mine;
      return true;
    }
    if (t.is_many(g)) return t.is_current(g.read) && again(t, t.many(g).front(), mine);
    return again(t, g.read, mine);
  }
  if (!one_lane_each(mine) || (g.read.place & kReadOnlyLoad)) return false;
  if ((mine.place & kScopeFlags) && hides_plain(g)) return false;
  if (!known_before(t, g.read) && !same_lanes(g.read, mine)) return false;
  g.write = mine;
  g.read = Stamp{};
  return true;
}

void in_cells(Touch& t, Granule& g, const Stamp& mine, uint64_t address) {
  const uint32_t size = kGranule / t.parts(g);
  Granule* const cells = t.cells(g);
  for (uint32_t k = 0; k < t.parts(g); ++k) {
    const Stamp part = slice(mine, k * size, size);
    if (!quick(t, cells[k], part)) t.cell(cells[k], part, address + k * size, size);
  }
}

inline __attribute__((always_inline)) void whole(Touch& t, Granule& g, const Stamp& mine,
                                                 uint64_t address) {
  if (quick(t, g, mine)) return;
  const bool fits = !(mine.place & kAffine) || (mine.lanes >> 8) >= 2;
  // A store of all of it by one lane makes it one piece again; several lanes are likely to go on
  // with words.
  const bool in_words = t.use == RaceUse::load || (mine.place & kAffine);
  if (fits && in_words && t.is_split(g)) return in_cells(t, g, mine, address);
  t.slow(g, 0, kGranule, mine, address);
}

inline Stamp of_lanes(const Touch& t, uint32_t mask) {
  Stamp s = t.stamp;
  s.lanes = mask;
  return s;
}

inline Stamp affine(const Touch& t, uint32_t lane, uint32_t shift) {
  Stamp s = t.stamp;
  s.place |= kAffine;
  s.lanes = lane | shift << 8;
  return s;
}

// One address for all lanes of `mask`.
void at_one(Touch& t, uint64_t address, uint32_t size, uint32_t mask) {
  const Stamp mine = of_lanes(t, mask);
  if (size >= kGranule) {
    for (uint64_t at = address; at < address + size; at += kGranule) {
      whole(t, t.granule(at), mine, at);
    }
    return;
  }
  Granule& g = t.granule(address);
  const auto offset = static_cast<uint32_t>(address % kGranule);
  const uint32_t cell = t.is_split(g) ? kGranule / t.parts(g) : kGranule;
  if (size < cell && read_only_again(t, g)) return;
  if (size < cell) return t.slow(g, offset, size, mine, address);
  Granule* const cells = t.cells(g) + offset / cell;
  for (uint32_t k = 0; k < size / cell; ++k) {
    if (!quick(t, cells[k], mine)) t.cell(cells[k], mine, address + k * cell, cell);
  }
}

// All 32 lanes, one after the other, from a multiple of 16 on.
void dense_access(Touch& t, uint64_t begin, uint32_t size) {
  const uint32_t shift = static_cast<uint32_t>(__builtin_ctz(size));
  const uint64_t end = begin + 32ull * size;
  for (uint64_t at = begin; at < end;) {
    Granule* g = &t.granule(at);
    const uint64_t stop = t.owner() ? end : at / kPage * kPage + kPage;
    for (; at < end && at < stop; at += kGranule, ++g) {
      const auto lane = static_cast<uint32_t>((at - begin) >> shift);
      whole(t, *g, size < kGranule ? affine(t, lane, shift) : of_lanes(t, 1u << lane), at);
    }
  }
}

// Neighbouring lanes that fill a granule together count as one.
void scattered_access(Touch& t, const uint64_t* address, uint32_t exec, uint32_t size) {
  const uint32_t shift = static_cast<uint32_t>(__builtin_ctz(size));
  const uint32_t lanes = size < kGranule ? kGranule / size : 1;
  for (uint32_t l = 0; l < 32; ++l) {
    if (!(exec >> l & 1)) continue;
    const uint64_t at = address[l];
    t.done = exec & ((1u << l) - 1);
    if (t.use != RaceUse::store && l < 31 && (exec >> (l + 1) & 1) && address[l + 1] == at) {
      uint32_t run = 1u << l;
      while (l < 31 && (exec >> (l + 1) & 1) && address[l + 1] == at) run |= 1u << ++l;
      at_one(t, at, size, run);
      continue;
    }
    if (size >= kGranule || at % kGranule || l + lanes > 32) {
      at_one(t, at, size, 1u << l);
      continue;
    }
    bool together = true;
    for (uint32_t k = 1; k < lanes; ++k) {
      together &= (exec >> (l + k) & 1) && address[l + k] == at + k * size;
    }
    if (!together) {
      at_one(t, at, size, 1u << l);
      continue;
    }
    whole(t, t.granule(at), affine(t, l, shift), at);
    l += lanes - 1;
  }
}

// This is rare and would make the usual way longer.
__attribute__((noinline, cold)) void write_borrowed(Touch& t, const uint64_t* address,
                                                    uint32_t exec, uint32_t size) {
  for (uint32_t rest = exec; rest; rest &= rest - 1) {
    const auto l = static_cast<uint32_t>(__builtin_ctz(rest));
    race_write_borrowed(t.grid(), of_lanes(t, 1u << l), address[l], address[l] + size);
  }
}

}  // namespace

void race_access(Warp& w, const Inst& inst, const uint64_t* address, uint32_t exec, uint32_t size,
                 RaceUse use, bool dense, Block* owner) {
  Touch t(w, inst, use, owner);
  if (use != RaceUse::load && !owner && !t.world().borrowed.empty()) {
    write_borrowed(t, address, exec, size);
  }
  t.address = address;
  t.exec = exec;
  if (dense && exec == ~0u && address[0] % kGranule == 0) {
    dense_access(t, address[0], size);
  } else {
    bool one = exec & (exec - 1);
    for (uint32_t rest = exec & (exec - 1); rest && one; rest &= rest - 1) {
      one = address[__builtin_ctz(rest)] == address[__builtin_ctz(exec)];
    }
    if (one && use != RaceUse::store) {
      at_one(t, address[__builtin_ctz(exec)], size, exec);
    } else {
      scattered_access(t, address, exec, size);
    }
  }
  if (t.order.scope != Scope::none) race_order(w, t.order, address, exec, owner);
}

}  // namespace sim
