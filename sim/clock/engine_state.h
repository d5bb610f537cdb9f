// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The state of a replay: engine.cpp decides who issues when, engine_units.cpp what an instruction
// keeps busy and for how long.
#pragma once

#include <deque>
#include <limits>
#include <memory>
#include <vector>

#include "sim/clock/engine.h"
#include "sim/clock/memory.h"
#include "sim/clock/resident.h"

namespace sim::clock {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr int kParts = 4;

struct Part {
  std::vector<WarpRun*> warps;  // in the order of their start
  WarpRun* last = nullptr;
  double next_issue = 0;  // one instruction a cycle
  double free[kOwnUnits] = {};
  double bank_free[2] = {};  // of registers: each gives one to all lanes in a cycle
};

struct Multiprocessor {
  Multiprocessor(const Machine& machine, const ReplaySetup& setup) : memory(machine, setup) {}
  Part parts[kParts];
  MemorySystem memory;
};

class Engine {
 public:
  Engine(const Machine& machine, const SassMap& map, const std::vector<BlockTrace>& blocks,
         const ReplaySetup& setup, size_t most_intervals)
      : machine_(machine),
        map_(map),
        traces_(blocks),
        setup_(setup),
        most_intervals_(most_intervals) {
    for (int k = 0; k < setup.cluster; ++k) processors_.emplace_back(machine_, setup_);
    result_.ops.resize(map.program.ops.size());
    result_.warps.resize(blocks.empty() ? 0 : blocks[0].warps.size());
    result_.ran.assign(result_.warps.size(), std::vector<bool>(result_.ops.size()));
  }
  ReplayResult run();

 private:
  struct Need {  // why the next instruction of a warp has to wait, and until when
    double until;
    Stall why;
  };
  void start_cluster(int slot, double time);
  void start_block(BlockRun& block, int slot, double time);
  void end_warp(WarpRun& w, double time);
  double needs(WarpRun& w, Need* needs, int* count);
  double group_time(const std::vector<double>& groups, unsigned keep) const;
  double phase_time(const WarpRun& w) const;
  double cluster_time(const WarpRun& w) const;
  void issue(WarpRun& w, double time);
  void charge(WarpRun& w, const Need* needs, int count, double time);
  double execute(WarpRun& w, double time);
  double execute_memory(WarpRun& w, const Op& op, double time);
  double multiply(WarpRun& w, const Op& op, double time);
  size_t pipe(const Part& part, const Op& op) const;
  double unit_free(const Part& part, const Op& op) const;
  void read_registers(Part& part, const Op& op, double time) const;
  double copy_bulk(WarpRun& w, const Effect& e, double time);
  void take_effect(WarpRun& w, const Op& op, double time, double done);
  void arrive(WarpRun& w, double time, bool waits);
  void contribute(WarpRun& w, double time);
  void signal(ClusterRun& cluster, const Signal& signal, double time);
  void interval(const WarpRun& w, double begin, double end, uint8_t kind);
  bool wake_somebody(double time);
  bool wake(WarpRun& w, double time);
  double look(Part& part, double time);
  void ask_again();
  void finish();
  Part& part(const WarpRun& w) { return processors_[w.block->rank].parts[w.part]; }
  MemorySystem& memory(const WarpRun& w) { return processors_[w.block->rank].memory; }

  const Machine& machine_;
  const SassMap& map_;
  const std::vector<BlockTrace>& traces_;
  const ReplaySetup setup_;
  std::deque<Multiprocessor> processors_;  // by rank of a block in its cluster
  std::vector<std::unique_ptr<ClusterRun>> slots_;
  std::vector<std::unique_ptr<ClusterRun>> ended_;
  size_t next_block_ = 0, live_ = 0;
  size_t most_intervals_;
  ReplayResult result_;
};

}  // namespace sim::clock
