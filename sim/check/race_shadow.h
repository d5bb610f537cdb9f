// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds the shadow of one memory, and one access on its way through that shadow.
#pragma once

#include "sim/check/race_state.h"

namespace sim {

// Returns the part of a stamp that is about bytes [offset, offset + bytes) of its granule.
Stamp slice(const Stamp& s, uint32_t offset, uint32_t bytes);

// A Shadow covers a block's shared memory or, with no owner, global memory.
class Shadow {
 public:
  Shadow(RaceBlock& user, Block* owner);
  explicit Shadow(RaceWorld& world);  // of global memory, for nobody in particular

  Granule& granule(uint64_t at) {
    if (owner_) return cells_[at / kGranule];
    return world_.page(at / kPage)[at % kPage / kGranule];
  }
  // Returns false if nothing in the page of this address was ever touched.
  bool has(uint64_t at) const { return owner_ || world_.pages.count(at / kPage); }
  bool is_split(const Granule& g) const {
    return g.write.agent == kSplit && g.write.place == pool_.generation;
  }
  uint32_t parts(const Granule& g) const { return g.write.lanes; }
  Granule* cells(const Granule& g) { return pool_.cells[g.write.clock - 1].get(); }
  bool is_current(const Stamp& marker) const { return marker.place == pool_.generation; }
  bool is_many(const Granule& g) const { return g.read.agent == kManyReads; }
  std::vector<Stamp>& many(const Granule& g) { return pool_.reads[g.read.clock - 1]; }

  // Removes what an earlier block left in this memory.
  void forget_stale(Granule& g);
  // Makes cells for a piece of a granule, small enough for what is known of it and for `mine`.
  void split_for(Granule& g, uint32_t offset, uint32_t length, const Stamp& mine);
  void unite(Granule& g, const Stamp& write);
  void drop_reads(Granule& g);
  uint32_t make_many(const Stamp* stamps, size_t count);
  // Adds a read that no warp makes: its agent's older one gives way.
  void add_read(Granule& g, const Stamp& s);

  // Calls f(cell, address, bytes) for the cells of [begin, begin + bytes); whole granules stay
  // whole.
  template <class F>
  void each(uint64_t begin, uint64_t bytes, F f) {
    for (uint64_t at = begin; at < begin + bytes;) {
      Granule& g = granule(at);
      forget_stale(g);
      const auto offset = static_cast<uint32_t>(at % kGranule);
      const uint64_t left = begin + bytes - at, room = kGranule - offset;
      const auto length = static_cast<uint32_t>(left < room ? left : room);
      if (length < kGranule) split_for(g, offset, length, Stamp{});
      if (!is_split(g)) {
        f(g, at, length);
      } else {
        const uint32_t size = kGranule / parts(g);
        for (uint32_t k = offset / size; k < (offset + length) / size; ++k) {
          f(cells(g)[k], at + k * size - offset, size);
        }
      }
      at += length;
    }
  }

  Block* owner() const { return owner_; }
  RaceWorld& world() { return world_; }

 private:
  void split(Granule& g, uint32_t parts);

  RaceWorld& world_;
  Block* owner_;
  RacePool& pool_;
  Granule* cells_;
  uint32_t base_ = 0, stride_ = 0;  // of the cluster that uses it
};

class Touch : public Shadow {
 public:
  Touch(Warp& warp, const Inst& inst, RaceUse use, Block* owner);

  // Handles the general case: `length` bytes of the granule from `offset` on.
  void slow(Granule& g, uint32_t offset, uint32_t length, const Stamp& mine, uint64_t at);
  // Handles a granule, or a cell of one, that is not split.
  void cell(Granule& g, const Stamp& mine, uint64_t at, uint32_t bytes);

  RaceWarp& me;
  Warp& warp;
  const Inst& inst;
  RaceUse use;
  Order order;
  Stamp stamp;  // of this access, without lanes
  const uint32_t* known;
  uint32_t base, count;
  uint32_t met;  // up to which clock the lanes of the warp are ordered
  // These fields describe the whole instruction: lanes that store to one place are told apart by
  // their values.
  const uint64_t* address = nullptr;
  uint32_t exec = 0;
  uint32_t done = 0;  // lanes before

  RaceGrid& grid() const { return *me.block->grid; }
  bool before(const Stamp& s, const Stamp& mine, bool read_after_write) const;
  // Says whether the access is of this launch.
  bool is_own(const Stamp& s) const { return owner() || grid().is_own(s.agent); }
  // If others hide the access, what an acquire learns at the place itself counts too.
  bool before_hidden(const Stamp& s, const Stamp& mine, uint64_t at) const;
  void conflict(const Stamp& s, const Stamp& mine, uint64_t at, uint32_t bytes);
  // Looks at the writes that a strong one hides (check/race_hidden.cpp).
  void read_hidden(Granule& g, const Stamp& mine, uint64_t at, uint32_t bytes);
  // Puts a read on record.
  void read(Granule& g, const Stamp& mine);

 private:
  bool lanes_before(const Stamp& s, const Stamp& mine, bool read_after_write) const;
  bool both_strong(const Stamp& s) const;
  bool needs_cells(const Granule& g, const Stamp& mine);
  bool is_far(const Stamp& s) const { return s.agent - base >= me.block->stride; }
  void forget_some(std::vector<Stamp>* set) const;
  // check/race_hidden.cpp
  bool hides(const Stamp& s, const Stamp& mine) const;
  void write(Granule& g, const Stamp& mine);
  void hide_read(std::vector<Stamp>* set, Stamp plain) const;
  void written_read_only(const Stamp& s, const Stamp& mine, uint64_t at, uint32_t bytes);
  bool same_values(uint32_t lane, uint32_t other) const;
  bool twice(Granule& g, const Stamp& mine, uint64_t at, uint32_t bytes);
};

}  // namespace sim
