// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The state of the clusters that are on the multiprocessors, one block on each.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "sim/clock/memory.h"

namespace sim::clock {

struct BlockRun;
struct ClusterRun;

struct WarpRun {
  WarpRun(const SassMap& map, const WarpTrace& t) : walk(map, t), trace(&t) {
    contributed.resize(t.effects.size());
  }
  Walk walk;
  const WarpTrace* trace;
  Walk::Step step;  // the next instruction
  BlockRun* block = nullptr;
  uint32_t index = 0;  // in the block
  int part = 0;
  bool ended = false;
  bool blocked = false;  // at a barrier
  double blocked_since = 0;
  double ready = 0;  // as the last instruction's stall cycles say
  double asked = 0;  // nothing can be issued before
  double last_issue = 0;
  std::array<double, 6> board{};  // when each scoreboard is clear
  std::array<Stall, 6> board_why{};
  std::array<double, 256> written{};  // when matrix instructions have written a register
  double copies = 0;                  // when those of the open group have landed
  std::vector<double> groups;         // when those of each committed group have
  double product = 0;                 // the same for wgmma
  std::vector<double> products;
  std::vector<bool> contributed;  // by effect: its parts of phases of mbarriers are done
  size_t cluster_arrivals = 0;
};

struct Barrier {
  uint32_t expected = 0, arrived = 0;  // warps; 0: all that live
  std::vector<WarpRun*> waiting;
};

// A Phase of an mbarrier is over when all arrivals and copies that the trace has for it are done.
struct Phase {
  uint32_t left = 0;
  double over = 0;
};

struct BlockRun {
  static constexpr size_t kMostBackEdges = 50'000;
  BlockRun(const SassMap& map, const BlockTrace& trace, uint32_t number);
  // Lets the warps of complete barriers go on at `time`.
  void release(double time, ReplayResult* result);

  uint32_t index;  // of the trace
  uint32_t rank;   // in the cluster, and the multiprocessor that it runs on
  ClusterRun* cluster = nullptr;
  double begin = 0, end = 0;
  size_t ended = 0;  // warps
  std::vector<std::unique_ptr<WarpRun>> warps;
  std::array<Barrier, 16> barriers;
  std::vector<BackEdge> back_edges;  // at most kMostBackEdges
};

struct ClusterRun {
  ClusterRun(const SassMap& map, const BlockTrace* traces, size_t size, uint32_t number, int at);
  // Counts an arrival at the cluster's barrier, or the end of a warp, after which nobody waits for
  // it. The barrier is over `latency` after the last one.
  void arrive(double time, double latency);
  void leave(double time, double latency);

  int slot;
  size_t live = 0;       // warps
  bool changed = false;  // warps that waited may go on
  std::vector<std::unique_ptr<BlockRun>> blocks;
  std::map<std::pair<uint64_t, uint64_t>, Phase> phases;  // by mbarrier and phase
  std::vector<double> barriers_over;                      // by number of the cluster's barrier

 private:
  void expect(const WarpRun& warp);
  void complete(double time);
  size_t arrived_ = 0;
};

}  // namespace sim::clock
