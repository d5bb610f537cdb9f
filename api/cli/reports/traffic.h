// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What the ranks of this process said to each other, as the drop-in NCCL counts it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "api/cli/reports/line_file.h"

namespace lathe::cli {

struct TrafficCounts {
  int groups = 0;            // of messages, of the rank with the most
  uint64_t sent = 0;         // bytes, of the rank with the most
  uint64_t largest_hop = 0;  // bytes that one rank sends in one group
};

// Counts from its making on; one at a time.
class Traffic {
 public:
  Traffic();
  ~Traffic();
  Traffic(const Traffic&) = delete;
  Traffic& operator=(const Traffic&) = delete;

  // Since the last call. Zeros where another NCCL runs.
  TrafficCounts take();

 private:
  LineFile file_;
  std::optional<std::string> before_;  // what the variable was
};

}  // namespace lathe::cli
