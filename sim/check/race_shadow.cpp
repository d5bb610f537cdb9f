// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles granules of the shadow: in one piece, in cells, with several readers.
#include "sim/check/race_shadow.h"

#include <algorithm>

namespace sim {
namespace {

// Lanes that share a cell of this size could not be told apart in it.
bool too_fine(const Stamp& s, uint32_t cell_bytes) {
  return s.clock && (s.place & kAffine) && (1u << (s.lanes >> 8)) < cell_bytes;
}

}  // namespace

Stamp slice(const Stamp& s, uint32_t offset, uint32_t bytes) {
  if (!s.clock || !(s.place & kAffine)) return s;
  Stamp part = s;
  const uint32_t lane = s.lanes & 31, shift = s.lanes >> 8;
  const uint32_t first = lane + (offset >> shift), last = lane + ((offset + bytes - 1) >> shift);
  part.place &= ~kAffine;
  part.lanes = (2u << last) - (1u << first);
  return part;
}

Shadow::Shadow(RaceBlock& user, Block* owner)
    : world_(*user.grid->world),
      owner_(owner),
      pool_(owner ? owner->races->pool : user.grid->world->pool),
      cells_(owner ? owner->races->shadow.data() : nullptr),
      base_(user.base),
      stride_(user.stride) {}

Shadow::Shadow(RaceWorld& world)
    : world_(world), owner_(nullptr), pool_(world.pool), cells_(nullptr) {}

// A write that is left over has been seen by nobody of this block, so a read beside it is older
// too.
void Shadow::forget_stale(Granule& g) {
  auto old = [&](const Stamp& s, uint32_t marker) {
    if (s.agent == marker) return s.place != pool_.generation;
    return owner_ && s.clock && s.agent - base_ >= stride_;
  };
  if (old(g.write, kSplit)) g = Granule{};
  if (old(g.read, kManyReads)) g.read = Stamp{};
}

void Shadow::drop_reads(Granule& g) {
  if (is_many(g)) pool_.free_reads.push_back(g.read.clock - 1);
  g.read = Stamp{};
}

uint32_t Shadow::make_many(const Stamp* stamps, size_t count) {
  const uint32_t index = pool_.new_reads();
  pool_.reads[index].assign(stamps, stamps + count);
  return index;
}

void Shadow::add_read(Granule& g, const Stamp& s) {
  constexpr size_t kMostReads = 8;
  if (!g.read.clock || g.read.agent == s.agent) {
    g.read = s;
  } else if (!is_many(g)) {
    const Stamp both[] = {s, g.read};
    g.read = Stamp{kManyReads, make_many(both, 2) + 1, pool_.generation, 0};
  } else {
    auto& set = many(g);
    const auto own = std::find_if(set.begin(), set.end(), [&](const Stamp& r) {
      return r.agent == s.agent && !(r.place & kHidden);
    });
    if (own != set.end()) {
      *own = s;
    } else if (set.size() < kMostReads || (set.front().place & kHidden)) {
      set.insert(set.begin(), s);
    } else {
      set.front() = s;
    }
  }
}

void Shadow::split(Granule& g, uint32_t wanted) {
  Granule whole = g;
  const bool was_split = is_split(whole);
  const uint32_t had = was_split ? parts(whole) : 1;
  if (had >= wanted) return;
  const uint32_t index = pool_.new_cells();
  Granule* const to = pool_.cells[index].get();
  Granule* const old = was_split ? cells(whole) : &whole;
  const uint32_t bytes = kGranule / wanted;
  for (uint32_t k = 0; k < wanted; ++k) {
    const Granule& from = old[k * had / wanted];
    to[k].write = slice(from.write, k * bytes, bytes);
    if (!is_many(from)) {
      to[k].read = slice(from.read, k * bytes, bytes);
      continue;
    }
    const uint32_t copy = pool_.new_reads();
    for (const Stamp& s : many(from)) pool_.reads[copy].push_back(slice(s, k * bytes, bytes));
    to[k].read = Stamp{kManyReads, copy + 1, pool_.generation, 0};
  }
  for (uint32_t k = 0; k < had; ++k) drop_reads(old[k]);
  if (was_split) pool_.free_cells.push_back(whole.write.clock - 1);
  g = Granule{};
  g.write = Stamp{kSplit, index + 1, pool_.generation, wanted};
}

void Shadow::split_for(Granule& g, uint32_t offset, uint32_t length, const Stamp& mine) {
  if (is_split(g) && parts(g) == kGranule) return;
  bool bytes = ((offset | length) & 3) || too_fine(mine, 4);
  if (!is_split(g)) {
    bytes |= too_fine(g.write, 4);
    if (is_many(g)) {
      for (const Stamp& s : many(g)) bytes |= too_fine(s, 4);
    } else {
      bytes |= too_fine(g.read, 4);
    }
  }
  split(g, bytes ? kGranule : 4);
}

// One history again, after a write of all of it.
void Shadow::unite(Granule& g, const Stamp& write) {
  const uint32_t size = kGranule / parts(g);
  for (uint32_t k = 0; k < parts(g); ++k) {
    if (cells(g)[k].write.lanes != slice(write, k * size, size).lanes) return;
  }
  pool_.free_cells.push_back(g.write.clock - 1);
  g = Granule{};
  g.write = write;
}

}  // namespace sim
