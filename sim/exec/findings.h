// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file keeps the findings of a launch. Each instruction keeps its share of them: those of the
// first clusters in the grid, and within a cluster those it made first. So the report does not
// depend on which host thread was faster.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "sim/exec/launch.h"

namespace sim {

class Findings {
 public:
  explicit Findings(int share = 1) : share_(share) {}

  // Says whether a finding that this cluster makes now would be kept. A Place is the instruction
  // and the fault.
  using Place = std::pair<uint32_t, int>;
  bool wanted(Place place, uint64_t cluster) const;
  void add(Place place, uint64_t cluster, Finding finding);
  // Returns the findings of clusters up to `last`, by cluster, then as they were made.
  std::vector<Finding> take(uint64_t last);

 private:
  struct Kept {
    uint64_t cluster, number;
    Finding finding;
  };

  int share_;
  uint64_t next_ = 0;
  std::map<Place, std::vector<Kept>> kept_;
};

}  // namespace sim
