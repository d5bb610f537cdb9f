// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file keeps the global memory that copies under way may still read. Between the issue of a
// copy and its wait nothing may write these bytes, whoever writes them: no order puts a write
// there that would come before or after the copy.
#include <algorithm>

#include "sim/check/race_shadow.h"
#include "sim/exec/async/async.h"
#include "sim/exec/grid_state.h"

namespace sim {
namespace {

template <class F>
void each_page(const Copy& c, F f) {
  uint64_t last = ~0ull;
  for (const Piece& p : c.pieces) {
    if (p.fill || p.bytes == 0) continue;
    for (uint64_t page = p.from / kPage; page <= (p.from + p.bytes - 1) / kPage; ++page) {
      if (page != last) f(page);
      last = page;
    }
  }
}

bool reads_global(const Copy& c) { return c.warp->race && !c.source && !c.arrives; }

}  // namespace

void race_borrow(const Copy& c) {
  if (!reads_global(c)) return;
  auto& borrowed = c.warp->race->block->grid->world->borrowed;
  each_page(c, [&](uint64_t page) {
    auto& copies = borrowed[page];
    if (copies.empty() || copies.back() != &c) copies.push_back(&c);
  });
}

void race_give_back(const Copy& c) {
  if (!reads_global(c)) return;
  auto& borrowed = c.warp->race->block->grid->world->borrowed;
  each_page(c, [&](uint64_t page) {
    const auto it = borrowed.find(page);
    if (it == borrowed.end()) return;
    std::erase(it->second, &c);
    if (it->second.empty()) borrowed.erase(it);
  });
}

void race_write_borrowed(RaceGrid& grid, const Stamp& mine, uint64_t begin, uint64_t end) {
  for (uint64_t page = begin / kPage; page <= (end - 1) / kPage; ++page) {
    const auto it = grid.world->borrowed.find(page);
    if (it == grid.world->borrowed.end()) continue;
    for (const Copy* c : it->second) {
      for (const Piece& p : c->pieces) {
        if (p.fill || p.from >= end || p.from + p.bytes <= begin || !(c->lanes >> p.lane & 1)) {
          continue;
        }
        const Stamp other{c->warp->race->agent, 1, c->inst->info << 8, 1u << p.lane};
        const uint64_t at = std::max(begin, p.from);
        const uint64_t stop = std::min(end, p.from + p.bytes);
        report_race(grid, RaceKind::source_in_flight, mine, other, at,
                    static_cast<uint32_t>(stop - at), false);
      }
    }
  }
}

}  // namespace sim
