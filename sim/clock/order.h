// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The order of PTX instructions within a block, with the stall cycles and scoreboards that it
// needs.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "sim/clock/machine.h"
#include "sim/clock/program.h"

namespace sim::clock {

// A Draft is an instruction with the names of its registers.
struct Draft {
  Op op;
  std::vector<std::string> writes, reads;
  bool stays = false;          // in its place among others that stay: memory, barriers
  double latency = 4;          // of what has no scoreboard
  uint32_t target = kNowhere;  // PTX instruction
};

// Puts the drafts of one block in order, and gives them stall cycles and scoreboards.
class Scheduler {
 public:
  explicit Scheduler(const Machine& machine) : machine_(machine) {}
  void add(std::vector<Draft> block, std::vector<Op>* ops);

 private:
  bool ready(const std::vector<Draft>& block, const std::vector<bool>& done, size_t at) const;
  double time_of(const Draft& draft) const;
  void emit(Draft& draft, std::vector<Op>* ops);

  const Machine& machine_;
  struct Value {
    double ready = 0;
    int board = -1;
  };
  std::unordered_map<std::string, Value> values_;
  double now_ = 0;
  int next_board_ = 0;
};

}  // namespace sim::clock
