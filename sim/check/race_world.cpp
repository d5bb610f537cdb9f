// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file keeps the shadow of global memory, and the list of launches that are in it.
#include "sim/check/race_world.h"

#include <algorithm>
#include <mutex>

namespace sim {

bool LaunchOrder::covers(const LaunchOrder& other) const {
  const auto found = before.find(other.line);
  if (found == before.end() || found->second < other.number) return false;
  return other.line != line || std::find(early.begin(), early.end(), other.number) == early.end();
}

std::vector<uint64_t> Dependence::early_for_next(const LaunchOrder& mine) const {
  std::vector<uint64_t> early;
  if (told) early.push_back(mine.number);
  // A grid that has not waited when it tells dependents to start, or at all, leaves that to them.
  if (told ? told_unwaited.load() : !waited)
    early.insert(early.end(), mine.early.begin(), mine.early.end());
  return early;
}

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

bool RaceLaunch::find(uint32_t agent, uint32_t block_id[3], uint32_t* warp) const {
  const uint32_t number = agent - origin;
  uint32_t at = number / stride;
  const uint32_t index = number % stride;
  const bool is_warp = index < cluster_blocks * warps;
  uint32_t rank = is_warp ? index / warps : (index - cluster_blocks * warps) % cluster_blocks;
  for (int k = 0; k < 3; ++k) {
    const uint32_t clusters = grid[k] / cluster[k];
    block_id[k] = at % clusters * cluster[k] + rank % cluster[k];
    at /= clusters;
    rank /= cluster[k];
  }
  *warp = is_warp ? index % warps : 0;
  return is_warp;
}

RaceWorld::~RaceWorld() {
  SparePages& spare = spare_pages();
  const std::lock_guard lock(spare.mutex);
  for (auto& [number, page] : pages) {
    if (spare.pages.size() >= kMostSpare) return;
    spare.pages.push_back(std::move(page));
  }
}

Granule* RaceWorld::page(uint64_t number) {
  const size_t slot = number % 64;
  if (recent[slot] && recent_page[slot] == number) return recent[slot];
  auto& page = pages[number];
  if (!page) page = new_page();
  recent_page[slot] = number;
  return recent[slot] = page.get();
}

bool RaceWorld::add(const std::shared_ptr<RaceLaunch>& launch) {
  constexpr uint64_t kMostAgents = 0xFFFF0000;  // markers are beyond
  const uint64_t first = launches.empty() ? 0 : launches.back()->end_agent() + uint64_t{1};
  if (!launches.empty() && first + launch->agents > kMostAgents) return false;
  launch->origin = static_cast<uint32_t>(first);
  launches.push_back(launch);
  return true;
}

const RaceLaunch* RaceWorld::launch_of(uint32_t agent) const {
  auto it =
      std::upper_bound(launches.begin(), launches.end(), agent,
                       [](uint32_t number, const auto& launch) { return number < launch->origin; });
  if (it == launches.begin()) return nullptr;
  --it;
  return (*it)->owns(agent) ? it->get() : nullptr;
}

const RaceLaunch* RaceWorld::find(uint32_t line, uint64_t number) const {
  const auto it = std::find_if(launches.rbegin(), launches.rend(), [&](const auto& launch) {
    return launch->order.line == line && launch->order.number == number;
  });
  return it == launches.rend() ? nullptr : it->get();
}

void RaceWorld::forget(uint64_t base, uint64_t bytes) {
  for (uint64_t at = base / kGranule * kGranule; at < base + bytes;) {
    const uint64_t number = at / kPage, end = std::min((number + 1) * kPage, base + bytes);
    const auto found = pages.find(number);
    if (found != pages.end()) {
      Granule* const first = found->second.get() + at % kPage / kGranule;
      std::fill(first, first + (end - at + kGranule - 1) / kGranule, Granule{});
    }
    at = (number + 1) * kPage;
  }
}

bool RaceWorld::over_for(const LaunchOrder& order) const {
  return std::all_of(launches.begin(), launches.end(),
                     [&](const auto& launch) { return order.covers(launch->order); });
}

}  // namespace sim
