// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The memory that a multiprocessor sees: shared memory and L1, the port to L2, its share of L2 and
// DRAM. Each takes requests in order; a request is over at a time that is known at its issue.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/clock/engine.h"

namespace sim::clock {

// A Queue serves one request after the other.
struct Queue {
  double free = 0, busy = 0;
  // Returns when a request that comes at `time` and takes `cycles` is over.
  double serve(double time, double cycles) {
    free = (time > free ? time : free) + cycles;
    busy += cycles;
    return free;
  }
};

// For how much of the time lately something was busy, in a window that slides over the stretch that
// is under way and the one before it.
class Lately {
 public:
  double share(double time);
  // Cycles of work that came at the time that was asked for last.
  void add(double cycles) { busy_ += cycles; }

 private:
  double begin_ = 0, busy_ = 0, before_ = 0;
};

// L1 in lines of 128 bytes with four sectors, four ways, the least recently used goes. Pages count
// in the order of their first use: where the host happened to put memory must not matter.
class L1 {
 public:
  explicit L1(uint32_t bytes);
  // Returns whether the sector was there, and brings it in.
  bool touch(uint64_t sector);

 private:
  struct Line {
    uint64_t tag = ~0ull;
    uint64_t used = 0;
    uint8_t sectors = 0;
  };
  static constexpr size_t kWays = 4;
  uint64_t line_of(uint64_t sector);

  std::vector<Line> lines_;
  std::unordered_map<uint64_t, uint64_t> pages_;  // number by address
  uint64_t recent_ = ~0ull, recent_number_ = 0;
  size_t sets_ = 0;
  uint64_t now_ = 0;
};

class MemorySystem {
 public:
  MemorySystem(const Machine& machine, const ReplaySetup& setup);

  // Passes over shared memory, or the reads of a matrix instruction.
  double shared(double time, double wavefronts);
  // The bytes of a cp.async are there at `time`; the call returns when they are written to shared
  // memory. That takes passes of its own and none from loads: an H200 whose loads all miss L1, so
  // that each byte is written to it and read from it, gets 124 bytes a cycle of 128 [units].
  double fill(double time, double wavefronts);
  // A request of a warp; returns when its data are there, or its stores accepted.
  double global(double time, const WarpTrace& trace, const Effect& effect, bool load, bool cached);
  // A copy of bytes between shared memory and L2, not through registers. What it writes takes
  // passes from reads. Without that FlashAttention-3 is at 0.88 of its published speed for D 256
  // instead of 0.83, but at 1.16 for D 128 instead of 1.04.
  double bulk(double time, double bytes, double sectors, bool load);
  // L2 is asked for sectors that will be loaded later; returns when the request is taken.
  double prefetch(double time, double sectors);
  // A copy of bytes to another block of the cluster; returns when they have left.
  double send(double time, double bytes);
  // Bytes of a multicast that another block asked for at `time`; returns when they are here.
  double receive(double time, double bytes);

  // Says whether a request would wait for long before it is taken.
  double backlog(double time) const;
  void add_to(ReplayResult* result, double share) const;

 private:
  // Sectors that are on their way to L2 ahead of a load.
  struct Ahead {
    double asked, cycles, bytes;  // when; of DRAM's work, those to come; that nobody has loaded yet
    double over = 0;              // when they are there, if none of the work is to come
  };
  double latency(double dram_share) const;
  double beyond_l1(double time, double sectors, bool load);
  void bring(double until);
  double dram(double time, double cycles);
  bool is_found(double bytes);
  double load_ahead(double time, double bytes);

  const Machine& machine_;
  const ReplaySetup& setup_;
  L1 l1_;
  Queue shared_, fills_, tags_, port_, dram_, tma_;
  Lately stores_;  // DRAM's work for them
  std::priority_queue<std::pair<double, double>, std::vector<std::pair<double, double>>,
                      std::greater<>>
      bulk_;                          // when bulk copies read or write shared memory, and passes
  std::deque<Ahead> ahead_;           // in the order of the requests
  double unasked_ = 0, missing_ = 0;  // bytes of loads: see is_found()
  double l2_share_, dram_share_;      // bytes a cycle
  double l2_bytes_ = 0, dram_bytes_ = 0;
};

}  // namespace sim::clock
