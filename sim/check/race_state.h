// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds the race checker's state: clocks of warps, blocks and barriers, and what belongs
// to a launch.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "sim/check/race.h"
#include "sim/check/race_world.h"
#include "sim/ptx/code.h"

namespace sim {

// A RaceParty is one side of a race, as findings name it.
struct RaceParty {
  uint32_t block[3] = {0, 0, 0}, thread[3] = {0, 0, 0};
  uint32_t warp = 0;
  int line = 0;
  bool strong = false;
  std::string source, access, text;
};

constexpr uint32_t kScopeFlags = 7;
constexpr uint32_t kAffine = 8, kReadOnlyLoad = 16, kAsyncAccess = 32;
// Among the readers of a granule: an access that a strong one after it hides.
constexpr uint32_t kHiddenRead = 64, kHiddenWrite = 128, kHidden = kHiddenRead | kHiddenWrite;

// These values are markers in Stamp::agent; then the clock is an index plus one, the place a
// generation of the pool.
constexpr uint32_t kSplit = 0xFFFFFFFF;  // of `write`: the granule has cells, Stamp::lanes of them
constexpr uint32_t kManyReads = 0xFFFFFFFE;  // of `read`: several agents, none before another

struct RaceBlock;

struct SyncClock {
  Knowledge known;
  RaceBlock* block = nullptr;
  uint32_t agent = 0, clock = 0;  // of the asynchronous writes that it completes; 0: none yet
};

struct RaceWarp {
  Knowledge known;     // of itself: up to where its lanes are ordered among each other
  uint32_t agent = 0;  // and its own clock, which others learn when it releases
  uint32_t clock = 1;
  RaceBlock* block = nullptr;
  Knowledge fence[3], pending[3];  // by scope: cta, cluster, gpu and beyond
  bool fenced = false, waits = false;
  // By lane, empty if there are none: cp.async of its own that an mbarrier has been told of, as the
  // clock of each mbarrier's agent.
  std::vector<std::map<uint32_t, uint32_t>> copied;
  // [l * 32 + m]: up to which clock lane m is before lane l. Empty: no part of the warp has met.
  std::vector<uint32_t> lanes;

  void publish(Knowledge* to) const;  // joins, with its own clock
  void start(uint32_t number, uint32_t base, uint32_t span);
  uint32_t index() const { return agent - known.base; }
};

struct RaceGrid;

struct RaceMbarrier {
  RaceBlock* block = nullptr;
  // `filling` belongs to the phase under way and `full` to the one before. The `far_` clocks are of
  // arrivals from other blocks, which should have the scope of the cluster, as should their waits.
  SyncClock *filling = nullptr, *full = nullptr, *far_filling = nullptr, *far_full = nullptr;
  bool far_arrived = false, far_completed = false;  // there were such arrivals, in either phase
};

struct RaceBlock {
  RaceGrid* grid = nullptr;
  uint32_t base = 0, first = 0;  // agents: the cluster's first, the block's first
  uint32_t stride = 0;           // of clusters
  std::vector<RaceWarp> warps;
  std::vector<Granule> shadow;  // of shared memory
  RacePool pool;
  Locations locations;
  SyncClock barriers[16];
  std::vector<std::unique_ptr<SyncClock>> clocks;
  std::vector<std::unique_ptr<RaceMbarrier>> mbarriers;
  uint32_t async_agents = 0;
};

// The other party of source_in_flight is a copy that may still read.
enum class RaceKind : uint8_t { race, nc_written, missing_proxy_fence, source_in_flight };

// A RaceGrid belongs to one launch. A single host thread runs all of it, so nothing here is locked.
struct RaceGrid {
  const Launch* launch = nullptr;
  std::shared_ptr<RaceWorld> world;
  std::shared_ptr<RaceLaunch> self;
  uint32_t warps = 0, cluster_blocks = 1, stride = 0;  // as in `self`
  std::map<std::tuple<uint32_t, uint32_t, RaceKind, const RaceLaunch*>, int> reported;

  bool is_own(uint32_t agent) const { return self->owns(agent); }
  uint32_t generation(const Block* owner) const;
};

// A block has this many agents for asynchronous work; with more mbarriers than these, some share
// one.
constexpr uint32_t kAsyncAgents = 64;
constexpr uint32_t kLaunchAgents = 2;  // RaceLaunch::start_agent() and end_agent()

// check/race_order.cpp
void race_order(Warp& warp, const Order& order, const uint64_t* address, uint32_t exec,
                Block* owner);
// Says whether an acquire at this address makes the access `s` come before it.
bool race_acquires(const RaceWarp& me, const Order& order, uint64_t address, const Block* owner,
                   const Stamp& s);
// check/race_borrow.cpp: `mine` writes [begin, end) of global memory.
void race_write_borrowed(RaceGrid& grid, const Stamp& mine, uint64_t begin, uint64_t end);
// check/race_launches.cpp: whether all that another launch did comes before what `me` does next.
bool race_knows(const RaceWarp& me, const RaceLaunch& other);
// `griddepcontrol.wait` makes known what may have been running; whether the warp knows it.
void race_grid_wait(Warp& warp);
bool race_has_waited(const Warp& warp);
// check/race_report.cpp: these put one side of a finding into words, the other party of another
// launch, and what would order the two; and begin a finding.
RaceParty race_party(const RaceLaunch& launch, const Stamp& s);
std::string race_other_text(const RaceLaunch& other, const RaceParty& party);
std::string race_remedy(const LaunchOrder& mine, const RaceLaunch& other);
Finding race_finding(const std::string& kernel, const RaceParty& a, const RaceParty& b,
                     uint64_t address, uint32_t bytes);
// check/race_report.cpp. `now` is the access that is being made. One finding for each pair of
// instructions.
void report_race(RaceGrid& grid, RaceKind kind, const Stamp& now, const Stamp& other,
                 uint64_t address, uint32_t bytes, bool shared);
// exec/launch.cpp and exec/block.cpp
std::shared_ptr<RaceGrid> make_race_grid(const Launch& launch);
std::shared_ptr<RaceBlock> make_race_block(RaceGrid& grid);
void start_races(Block& block);

}  // namespace sim
