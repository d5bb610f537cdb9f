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

uint32_t RaceGrid::generation(const Block* owner) const {
  return owner ? owner->races->pool.generation : world->pool.generation;
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
  copied.clear();
  lanes.clear();
}

std::shared_ptr<RaceGrid> make_race_grid(const Launch& launch) {
  auto grid = std::make_shared<RaceGrid>();
  const Grid& g = *launch.grid;
  grid->launch = &launch;
  auto self = std::make_shared<RaceLaunch>();
  self->name = g.kernel->name;
  self->function = g.kernel->code;
  self->order = g.order;
  uint64_t clusters = 1;
  for (int k = 0; k < 3; ++k) {
    self->grid[k] = g.grid[k];
    self->block[k] = g.block[k];
    self->cluster[k] = g.cluster[k];
    clusters *= g.grid[k] / g.cluster[k];
  }
  grid->warps = self->warps = (g.block[0] * g.block[1] * g.block[2] + 31) / 32;
  grid->cluster_blocks = self->cluster_blocks = g.cluster[0] * g.cluster[1] * g.cluster[2];
  grid->stride = self->stride = self->cluster_blocks * (self->warps + kAsyncAgents);
  self->agents = static_cast<uint32_t>(clusters * self->stride + kLaunchAgents);
  grid->self = self;
  grid->world = g.world && g.world->add(self) ? g.world : std::make_shared<RaceWorld>();
  if (grid->world != g.world) grid->world->add(self);
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
  r->base = r->grid->self->origin + cluster * r->stride;
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
