// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds the race checker's state: a shadow of 16-byte granules, clocks of warps and
// blocks, and what locations in memory carry from a release to an acquire.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "sim/check/clocks.h"
#include "sim/check/race.h"
#include "sim/exec/launch.h"
#include "sim/ptx/code.h"

namespace sim {

struct Copy;  // exec/async/async.h

// A RaceParty is one side of a race, as findings name it.
struct RaceParty {
  uint32_t block[3] = {0, 0, 0}, thread[3] = {0, 0, 0};
  uint32_t warp = 0;
  int line = 0;
  bool strong = false;
  std::string source, access, text;
};

// A Stamp is one access, as the shadow remembers it. Clock 0 stands for none.
struct Stamp {
  uint32_t agent = 0, clock = 0;
  uint32_t place = 0;  // instruction << 8 | flags
  uint32_t lanes = 0;  // a mask; with kAffine: lane of the first byte | shift << 8, byte b of the
                       // granule being lane + (b >> shift)'s
};
constexpr uint32_t kScopeFlags = 7;
constexpr uint32_t kAffine = 8, kReadOnlyLoad = 16, kAsyncAccess = 32;
// Among the readers of a granule: an access that a strong one after it hides.
constexpr uint32_t kHiddenRead = 64, kHiddenWrite = 128, kHidden = kHiddenRead | kHiddenWrite;

// These values are markers in Stamp::agent; then the clock is an index plus one, the place a
// generation of the pool.
constexpr uint32_t kSplit = 0xFFFFFFFF;  // of `write`: the granule has cells, Stamp::lanes of them
constexpr uint32_t kManyReads = 0xFFFFFFFE;  // of `read`: several agents, none before another

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
  uint32_t warps = 0, cluster_blocks = 1, stride = 0;
  std::unordered_map<uint64_t, std::unique_ptr<Granule[]>> pages;  // by address / kPage
  uint64_t recent_page[64] = {};
  Granule* recent[64] = {};
  RacePool pool;
  Locations locations;
  // Copies that may still read global memory, by address / kPage.
  std::unordered_map<uint64_t, std::vector<const Copy*>> borrowed;
  bool early = false;                      // the grid in front may still run
  bool triggered = false, waited = false;  // griddepcontrol has been executed
  std::map<std::tuple<uint32_t, uint32_t, RaceKind>, int> reported;

  ~RaceGrid();
  Granule* page(uint64_t number);
  uint32_t generation(const Block* owner) const;
  // Finds a warp's block and number from its agent; returns false for asynchronous ones, which have
  // a block only.
  bool find(uint32_t agent, uint32_t block[3], uint32_t* warp) const;
};

// A block has this many agents for asynchronous work; with more mbarriers than these, some share
// one.
constexpr uint32_t kAsyncAgents = 64;

// check/race_order.cpp
void race_order(Warp& warp, const Order& order, const uint64_t* address, uint32_t exec,
                Block* owner);
// Says whether an acquire at this address makes the access `s` come before it.
bool race_acquires(const RaceWarp& me, const Order& order, uint64_t address, const Block* owner,
                   const Stamp& s);
// check/race_borrow.cpp: `mine` writes [begin, end) of global memory.
void race_write_borrowed(RaceGrid& grid, const Stamp& mine, uint64_t begin, uint64_t end);
// check/race_past.cpp: what griddepcontrol does, and what a grid leaves behind for the next one;
// null if the next one may not start early.
void race_grid_control(Warp& warp, const Form& form);
std::shared_ptr<const PastGrid> keep_past(RaceGrid& grid);
// Puts one side of a finding into words.
RaceParty race_party(const RaceGrid& grid, const Stamp& s);
// `mine` touches what a thread of the grid before has touched.
void report_past(RaceGrid& grid, const Stamp& mine, const RaceParty& other,
                 const std::string& kernel, uint64_t address, uint32_t bytes);
// check/race_report.cpp. `now` is the access that is being made. One finding for each pair of
// instructions.
void report_race(RaceGrid& grid, RaceKind kind, const Stamp& now, const Stamp& other,
                 uint64_t address, uint32_t bytes, bool shared);
// exec/launch.cpp and exec/block.cpp
std::shared_ptr<RaceGrid> make_race_grid(const Launch& launch);
std::shared_ptr<RaceBlock> make_race_block(RaceGrid& grid);
void start_races(Block& block);

}  // namespace sim
