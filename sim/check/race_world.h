// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The shadow of a device's global memory, and the launches that are in it. Launches of different
// streams may run at the same time, so one has to find what the others did there, wherever nothing
// orders the two.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "sim/check/clocks.h"
#include "sim/exec/launch.h"

namespace sim {

struct Copy;  // exec/async/async.h
struct Function;

// A Stamp is one access, as the shadow remembers it. Clock 0 stands for none.
struct Stamp {
  uint32_t agent = 0, clock = 0;
  uint32_t place = 0;  // instruction << 8 | flags
  uint32_t lanes = 0;  // a mask; with kAffine: lane of the first byte | shift << 8, byte b of the
                       // granule being lane + (b >> shift)'s
};

// A Granule holds the last accesses of 16 bytes of memory that have one history; a cell of 4 bytes
// or 1 is alike.
struct Granule {
  Stamp write, read;
};
constexpr uint32_t kGranule = 16;
constexpr uint32_t kPage = 4096;

// The pool holds cells and read sets of the granules that need them.
struct RacePool {
  uint32_t generation = 1;
  std::vector<std::unique_ptr<Granule[]>> cells;
  std::vector<uint32_t> free_cells;
  std::vector<std::vector<Stamp>> reads;
  std::vector<uint32_t> free_reads;
  uint32_t used_cells = 0, used_reads = 0;

  void clear();  // what refers to it from before is stale
  uint32_t new_cells();
  uint32_t new_reads();
};

// A location carries this knowledge since its last release: for everybody, for one cluster, for one
// block.
struct Location {
  Knowledge wide, cluster, cta;
  uint32_t cluster_base = 0, cta_first = 0;
};
using Locations = std::unordered_map<uint64_t, Location>;  // by address / 8

// A RaceLaunch is a launch, a copy or a fill, as the shadow remembers it: whose stamps have agents
// from `origin` on.
struct RaceLaunch {
  std::string name;                          // of the kernel, or "copy", "fill"
  std::shared_ptr<const Function> function;  // null: no kernel
  LaunchOrder order;
  uint32_t origin = 0, agents = 1;
  uint32_t grid[3] = {1, 1, 1}, block[3] = {1, 1, 1}, cluster[3] = {1, 1, 1};
  uint32_t warps = 0, cluster_blocks = 1, stride = 0;

  bool owns(uint32_t agent) const { return agent - origin < agents; }
  // An agent that knows the first of these knows what was over when the launch began; one that
  // knows the second knows all that the launch did.
  uint32_t start_agent() const { return origin + agents - 2; }
  uint32_t end_agent() const { return origin + agents - 1; }
  // Finds a warp's block and number from its agent; returns false for asynchronous ones, which have
  // a block only.
  bool find(uint32_t agent, uint32_t block[3], uint32_t* warp) const;
};

// A RaceWorld belongs to one launch, or to all those of a device that may run beside each other: of
// these one runs at a time, so nothing here is locked.
struct RaceWorld {
  std::unordered_map<uint64_t, std::unique_ptr<Granule[]>> pages;  // by address / kPage
  uint64_t recent_page[64] = {};
  Granule* recent[64] = {};
  RacePool pool;
  Locations locations;
  // Copies that may still read global memory, by address / kPage.
  std::unordered_map<uint64_t, std::vector<const Copy*>> borrowed;
  std::vector<std::shared_ptr<const RaceLaunch>> launches;  // by origin

  RaceWorld() = default;
  ~RaceWorld();
  RaceWorld(const RaceWorld&) = delete;
  RaceWorld& operator=(const RaceWorld&) = delete;

  Granule* page(uint64_t number);
  // Gives the launch its agents. Returns false if there are not so many left.
  bool add(const std::shared_ptr<RaceLaunch>& launch);
  const RaceLaunch* launch_of(uint32_t agent) const;
  const RaceLaunch* find(uint32_t line, uint64_t number) const;
  // Forgets what was done to memory that has been freed meanwhile.
  void forget(uint64_t base, uint64_t bytes);
  // Says whether everything in the world is over for whoever comes after `order`.
  bool over_for(const LaunchOrder& order) const;
  size_t bytes() const { return pages.size() * (kPage / kGranule) * sizeof(Granule); }
};

// A Move is what a copy or a fill does to the memory of a device; `from` is 0 if it reads nothing
// of it, `to` is 0 if it writes nothing of it.
struct Move {
  const char* name = "";
  LaunchOrder order;
  uint64_t to = 0, from = 0, bytes = 0;
};
// Returns the races of a copy or a fill with launches that nothing orders before it.
std::vector<Finding> race_move(RaceWorld& world, const Move& move);

}  // namespace sim
