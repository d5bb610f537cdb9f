// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles clocks of warps, blocks and barriers.
#include "sim/check/race.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "sim/check/race_state.h"
#include "sim/exec/grid_state.h"

namespace sim {

void RacePool::clear() {
  ++generation;
  free_cells.clear();
  free_reads.clear();
  used_cells = used_reads = 0;
}

uint32_t RacePool::new_cells() {
  if (!free_cells.empty()) {
    const uint32_t index = free_cells.back();
    free_cells.pop_back();
    return index;
  }
  if (used_cells == cells.size()) cells.push_back(std::make_unique<Granule[]>(kGranule));
  return used_cells++;
}

uint32_t RacePool::new_reads() {
  if (!free_reads.empty()) {
    const uint32_t index = free_reads.back();
    free_reads.pop_back();
    reads[index].clear();
    return index;
  }
  if (used_reads == reads.size()) reads.emplace_back();
  reads[used_reads].clear();
  return used_reads++;
}

namespace {

// Pages of the shadow of earlier launches: fresh ones cost a fault of the host each.
struct SparePages {
  std::mutex mutex;
  std::vector<std::unique_ptr<Granule[]>> pages;
};
constexpr size_t kMostSpare = 4096;  // 32 MiB
SparePages& spare_pages() {
  static SparePages spare;
  return spare;
}

std::unique_ptr<Granule[]> new_page() {
  SparePages& spare = spare_pages();
  std::unique_lock lock(spare.mutex);
  if (spare.pages.empty()) {
    lock.unlock();
    return std::make_unique<Granule[]>(kPage / kGranule);
  }
  std::unique_ptr<Granule[]> page = std::move(spare.pages.back());
  spare.pages.pop_back();
  lock.unlock();
  std::fill_n(page.get(), kPage / kGranule, Granule{});
  return page;
}

}  // namespace

RaceGrid::~RaceGrid() {
  SparePages& spare = spare_pages();
  const std::lock_guard lock(spare.mutex);
  for (auto& [number, page] : pages) {
    if (spare.pages.size() >= kMostSpare) return;
    spare.pages.push_back(std::move(page));
  }
}

Granule* RaceGrid::page(uint64_t number) {
  const size_t slot = number % 64;
  if (recent[slot] && recent_page[slot] == number) return recent[slot];
  auto& page = pages[number];
  if (!page) page = new_page();
  recent_page[slot] = number;
  return recent[slot] = page.get();
}

uint32_t RaceGrid::generation(const Block* owner) const {
  return owner ? owner->races->pool.generation : pool.generation;
}

bool RaceGrid::find(uint32_t agent, uint32_t block[3], uint32_t* warp) const {
  const Grid& grid = *launch->grid;
  uint32_t cluster = agent / stride, index = agent % stride;
  const bool is_warp = index < cluster_blocks * warps;
  uint32_t rank = is_warp ? index / warps : (index - cluster_blocks * warps) % cluster_blocks;
  for (int k = 0; k < 3; ++k) {
    const uint32_t clusters = grid.grid[k] / grid.cluster[k];
    block[k] = cluster % clusters * grid.cluster[k] + rank % grid.cluster[k];
    cluster /= clusters;
    rank /= grid.cluster[k];
  }
  *warp = is_warp ? index % warps : 0;
  return is_warp;
}

void RaceWarp::publish(Knowledge* to) const {
  to->join(known);
  to->raise(kGenericClock, agent, clock);
}

void RaceWarp::start(uint32_t number, uint32_t base, uint32_t span) {
  agent = number;
  clock = 1;
  known.clear(base, span);
  for (Knowledge& k : fence) k.clear(0, 0);
  for (Knowledge& k : pending) k.clear(0, 0);
  fenced = waits = false;
  lanes.clear();
}

std::shared_ptr<RaceGrid> make_race_grid(const Launch& launch) {
  auto grid = std::make_shared<RaceGrid>();
  const Grid& g = *launch.grid;
  grid->launch = &launch;
  grid->early = g.before != nullptr;
  grid->warps = (g.block[0] * g.block[1] * g.block[2] + 31) / 32;
  grid->cluster_blocks = g.cluster[0] * g.cluster[1] * g.cluster[2];
  grid->stride = grid->cluster_blocks * (grid->warps + kAsyncAgents);
  return grid;
}

std::shared_ptr<RaceBlock> make_race_block(RaceGrid& grid) {
  auto block = std::make_shared<RaceBlock>();
  block->grid = &grid;
  block->stride = grid.stride;
  block->shadow.resize(grid.launch->view.shared_bytes / kGranule + 2);
  block->warps.resize(grid.warps);
  return block;
}

// The shadow stays: what is in it belongs to agents that the new block's cluster does not have.
void start_races(Block& block) {
  RaceBlock* const r = block.races;
  if (!r) return;
  const Grid& g = *r->grid->launch->grid;
  uint32_t cluster = 0, rank = 0;
  for (int k = 2; k >= 0; --k) {
    cluster = cluster * (g.grid[k] / g.cluster[k]) + block.id[k] / g.cluster[k];
    rank = rank * g.cluster[k] + block.id[k] % g.cluster[k];
  }
  r->base = cluster * r->stride;
  r->first = r->base + rank * block.warps;
  r->pool.clear();
  r->locations.clear();
  r->clocks.clear();
  r->mbarriers.clear();
  r->async_agents = 0;
  for (SyncClock& barrier : r->barriers) barrier.known.clear(r->base, r->stride);
  for (uint32_t k = 0; k < block.warps; ++k) {
    r->warps[k].start(r->first + k, r->base, r->stride);
    r->warps[k].block = r;
    block.warp[k].race = &r->warps[k];
  }
}

SyncClock* race_clock(Block& owner) {
  if (!owner.races) return nullptr;
  auto clock = std::make_unique<SyncClock>();
  clock->block = owner.races;
  clock->known.clear(owner.races->base, owner.races->stride);
  owner.races->clocks.push_back(std::move(clock));
  return owner.races->clocks.back().get();
}

void race_clear(SyncClock* clock) {
  if (clock) clock->known.clear(clock->known.base, clock->known.span);
}

void race_release(Warp& w, SyncClock* clock) {
  if (!w.race || !clock) return;
  w.race->publish(&clock->known);
  ++w.race->clock;
}

void race_acquire(Warp& w, const SyncClock* clock) {
  if (w.race && clock) w.race->known.join(clock->known);
}

void race_barrier_arrive(Warp& w, uint32_t id) {
  if (w.race) race_release(w, &w.block->races->barriers[id]);
}

void race_barrier_complete(Block& block, uint32_t id, uint64_t waiting) {
  if (!block.races) return;
  SyncClock& barrier = block.races->barriers[id];
  for (uint32_t k = 0; k < block.warps; ++k) {
    if (waiting >> k & 1) race_acquire(block.warp[k], &barrier);
  }
  race_clear(&barrier);
}

// A whole warp that meets moves its own entry; parts of it keep a matrix of lanes.
static void meet(Warp& w, uint32_t members) {
  RaceWarp& r = *w.race;
  const uint32_t threads = std::min(32u, w.block->threads - 32 * w.index);
  const uint32_t all = threads == 32 ? ~0u : (1u << threads) - 1;
  if ((members & all) == all) return r.known.raise(kGenericClock, r.agent, r.clock);
  if (r.lanes.empty()) r.lanes.resize(32 * 32);
  uint32_t met[32] = {};
  for (uint32_t l = 0; l < 32; ++l) {
    if (!(members >> l & 1)) continue;
    for (uint32_t m = 0; m < 32; ++m) met[m] = std::max(met[m], r.lanes[l * 32 + m]);
    met[l] = r.clock;
  }
  for (uint32_t l = 0; l < 32; ++l) {
    if (members >> l & 1) std::copy(met, met + 32, r.lanes.begin() + l * 32);
  }
}

void race_warp_sync(Warp& w, uint32_t members) {
  if (!w.race) return;
  meet(w, members);
  ++w.race->clock;
}

}  // namespace sim
