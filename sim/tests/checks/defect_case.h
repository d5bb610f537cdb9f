// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A DefectCase is one file of the corpus of defective kernels: what its header says, its two texts,
// and the result that it promises. sim/tests/defects/README.md describes the format.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "sim/exec/policy.h"

namespace sim::test {

struct DefectCase {
  std::string path;
  std::string check, kind;               // of the finding
  std::string folder;                    // the corpus's
  int error = 0;                         // the launch ends with
  std::set<int> unchecked_errors = {0};  // and without any check, one of these
  bool some_seeds = false;               // not every seed shows the defect
  std::set<AsyncPolicy> policies = {AsyncPolicy::eager, AsyncPolicy::lazy, AsyncPolicy::random};
  bool any_line = false;  // one marked line is enough
  std::vector<std::string> also;
  std::vector<std::string> texts;     // parts of the finding's sentence
  std::map<std::string, int> launch;  // blocks, threads, cluster, dynamic, limit, thread, block
  std::map<std::string, int> repaired_launch;  // where it differs
  std::string expression;                      // out[i] of the repaired twin; empty: not stated
  int count = 0;                               // for i below this
  std::vector<int> lines;  // the finding names one of them; all of them are found
  int other_line = 0;      // of the other party of a race
  std::vector<std::string> parameters = {"in", "out"};  // names of the kernel's parameters
  std::string entry;                                    // directives of the kernel
  bool grid_index = false;   // addresses follow from the thread's index in the grid
  bool wgmma_tiles = false;  // registers for a wgmma of two tiles are set
  std::string defective, repaired;
};

// Reads a file; throws std::runtime_error where its header is wrong.
DefectCase read_defect(const std::string& path, const std::string& check);

// Returns the value of a C expression over the integers, the variable i and the array in.
int64_t evaluate(const std::string& expression, int64_t i, const std::vector<uint32_t>& in);

}  // namespace sim::test
