// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These checks take away, one at a time, each wait, fence, commit, arrival, barrier, expected byte
// and phase in the PTX of a kernel by warpgroups. Each time the simulator's checkers say so, or the
// result is another one; and the kernel as it is has nothing to say and the same bits under 20
// seeds and all policies of asynchronous copies.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "tests/harness/call.h"

namespace apitest {

// A kernel, a call that runs it, and what its answer has to be. The plan has the kernel in one
// form: groups of heads would have two.
struct Subject {
  const char* kernel;
  std::function<Answer()> call;
  std::function<void(const Answer&)> check;
  // An output that is added up in any order, so that its last places differ between schedules.
  std::string sum = "";
  // Copies of a block's panels are asked for together: a wait for the wrong phase of one of them
  // shows where that one alone is late, which no schedule need bring about.
  bool panels = false;
  // How many mutations of a rule may stay unseen. Who names some says why: mostly because something
  // else orders the same.
  std::map<std::string, int> covered = {};
  size_t least = 60;  // mutations there are, at least
  // Registers are given and taken too. The simulator sees that a warp takes what nobody gave, and
  // not that it uses what it did not take.
  bool registers = false;
  // The device has so many. Few give each block several tiles, so that stages are used again and
  // phases turn.
  int multiprocessors = 1;
};

// Runs the part of the mutations that LATHE_TEST_SHARD chooses, a sixteenth if it is not set. With
// LATHE_TEST_SHOW each one's line and what was found are printed.
void check_mutations(const Subject& subject);

}  // namespace apitest
