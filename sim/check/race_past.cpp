// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file checks a grid against the one before it in its stream, where programmatic dependent
// launch lets the later one start early: until a thread has executed griddepcontrol.wait, nothing
// of the earlier grid is ordered before it. That holds whatever the schedule, so every early access
// to what the earlier grid touched is found.
#include <algorithm>

#include "sim/check/race_shadow.h"
#include "sim/exec/grid_state.h"

namespace sim {

// A Place is an instruction of the past grid; the first thread that was seen there stands for all.
struct PastGrid {
  struct Place {
    RaceParty party;
    bool strong = false;
  };
  struct Cell {  // 16 bytes
    uint16_t written = 0, read = 0;
    uint32_t writer = 0, reader = 0;  // in `places`
  };
  using Page = std::unique_ptr<Cell[]>;

  std::string kernel;
  std::vector<Place> places;
  std::unordered_map<uint64_t, Page> pages;  // by address / kPage
  std::shared_ptr<const PastGrid> before;    // that this one has not waited for
};

namespace {

// To the race check the past grid is one agent, whom griddepcontrol.wait makes known.
constexpr uint32_t kPastAgent = 0xFFFFFFFD;

class Keeper {
 public:
  explicit Keeper(RaceGrid& grid) : grid_(grid), past_(std::make_shared<PastGrid>()) {
    past_->kernel = grid.launch->grid->kernel->name;
  }

  std::shared_ptr<PastGrid> keep() {
    for (const auto& [number, page] : grid_.pages) {
      auto cells = std::make_unique<PastGrid::Cell[]>(kPage / kGranule);
      for (uint32_t k = 0; k < kPage / kGranule; ++k) granule(page[k], &cells[k]);
      past_->pages[number] = std::move(cells);
    }
    return std::move(past_);
  }

 private:
  void granule(const Granule& g, PastGrid::Cell* to) {
    if (g.write.agent != kSplit) return add(g, 0, kGranule, to);
    const uint32_t parts = g.write.lanes, bytes = kGranule / parts;
    const Granule* const cells = grid_.pool.cells[g.write.clock - 1].get();
    for (uint32_t k = 0; k < parts; ++k) add(cells[k], k * bytes, bytes, to);
  }

  void add(const Granule& g, uint32_t offset, uint32_t bytes, PastGrid::Cell* to) {
    const auto mask = static_cast<uint16_t>(((1u << bytes) - 1) << offset);
    auto write = [&](const Stamp& s) {
      to->written |= mask;
      to->writer = place(slice(s, 0, 1));
    };
    auto read = [&](const Stamp& s) {
      to->read |= mask;
      to->reader = place(slice(s, 0, 1));
    };
    if (g.write.clock) write(g.write);
    if (g.read.clock && g.read.agent != kManyReads) read(g.read);
    if (g.read.agent != kManyReads) return;
    for (const Stamp& s : grid_.pool.reads[g.read.clock - 1]) {
      if (s.place & kHiddenWrite) {
        if (!(to->written & mask)) write(s);
      } else {
        read(s);
      }
    }
  }

  uint32_t place(const Stamp& s) {
    const auto [it, fresh] =
        numbers_.try_emplace(s.place, static_cast<uint32_t>(past_->places.size()));
    if (fresh) {
      const bool strong = (s.place & kScopeFlags) >= static_cast<uint32_t>(Scope::gpu);
      past_->places.push_back({race_party(grid_, s), strong});
    }
    return it->second;
  }

  RaceGrid& grid_;
  std::shared_ptr<PastGrid> past_;
  std::unordered_map<uint32_t, uint32_t> numbers_;  // by Stamp::place
};

// Looks for the bytes [at, at + bytes) of one granule.
const PastGrid::Place* collision(const PastGrid& past, uint64_t at, uint32_t bytes, bool load,
                                 bool strong) {
  const auto page = past.pages.find(at / kPage);
  if (page == past.pages.end()) return nullptr;
  const PastGrid::Cell& cell = page->second[at % kPage / kGranule];
  const uint32_t mask = ((1u << bytes) - 1) << at % kGranule;
  auto races = [&](uint32_t place) { return !(strong && past.places[place].strong); };
  if ((cell.written & mask) && races(cell.writer)) return &past.places[cell.writer];
  if (!load && (cell.read & mask) && races(cell.reader)) return &past.places[cell.reader];
  return nullptr;
}

}  // namespace

void race_grid_control(Warp& w, const Form& f) {
  RaceWarp& r = *w.race;
  RaceGrid& grid = *r.block->grid;
  if (!f.has(kWaitMod)) {
    grid.triggered = true;
    return;
  }
  grid.waited = true;
  if (!grid.launch->grid->before) return;
  for (int kind = 0; kind < kClockKinds; ++kind) {
    r.known.raise(static_cast<ClockKind>(kind), kPastAgent, 1);
  }
}

void race_past(Touch& t, const Stamp& mine, uint64_t begin, uint64_t end) {
  if (t.me.known.of(kGenericClock, kPastAgent)) return;
  const bool strong = t.order.scope >= Scope::gpu;
  for (const PastGrid* past = t.grid().launch->grid->before.get(); past;
       past = past->before.get()) {
    for (uint64_t at = begin; at < end;) {
      const auto bytes = static_cast<uint32_t>(std::min(end - at, kGranule - at % kGranule));
      const PastGrid::Place* other = collision(*past, at, bytes, t.use == RaceUse::load, strong);
      if (other) report_past(t.grid(), mine, other->party, past->kernel, at, bytes);
      at += bytes;
    }
  }
}

std::shared_ptr<const PastGrid> keep_past(RaceGrid& grid) {
  const auto& before = grid.launch->grid->before;
  if (!grid.triggered) return grid.waited ? nullptr : before;
  std::shared_ptr<PastGrid> past = Keeper(grid).keep();
  if (!grid.waited) past->before = before;
  return past;
}

}  // namespace sim
