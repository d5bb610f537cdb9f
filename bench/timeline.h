// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Sums and draws what the simulator wrote down in model time (sim/driver/README.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bench {

struct Span {
  int rank = -1;
  uint64_t stream = 0;
  std::string kind, name;  // kind: launch, copy, transfer or wait
  double begin = 0, end = 0;
  uint64_t bytes = 0, sent = 0, received = 0;
};

// Reads the lines behind the last restart of the clocks.
std::vector<Span> read_timeline(const std::string& text);

// One rank's time, in microseconds.
struct Usage {
  double end = 0;       // of its last work
  double compute = 0;   // while a kernel or a copy runs
  double transfer = 0;  // while messages travel
  double exposed = 0;   // while messages travel and nothing runs
  int groups = 0;       // of messages
  uint64_t bytes = 0;   // on the link: the larger of what it sends and what it receives

  double hidden() const { return transfer > 0 ? 1 - exposed / transfer : 1; }
};
Usage usage_of(const std::vector<Span>& spans, int rank);

// Draws a line for each rank and stream, `columns` characters for all of the time: # kernels, =
// messages, . a wait.
std::string draw_timeline(const std::vector<Span>& spans, int columns);

}  // namespace bench
