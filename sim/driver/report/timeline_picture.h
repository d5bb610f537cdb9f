// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Pictures of the timeline: each stream of each rank has a row, and work that overlaps inside a
// stream (a dependent launch, nodes of a graph) has further rows of that stream.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sim::driver {

// A Span is one line of the timeline.
struct Span {
  int rank = -1;
  uint64_t context = 0, stream = 0;
  std::string kind, name;
  double begin = 0, end = 0;  // microseconds
  std::string line;           // the JSON object that the timeline's file has for it
};

// Spans are drawn between two restarts. Pictures hold the first ones only, and say how many more
// there were.
struct Spans {
  static constexpr size_t kMost = 20'000;
  void add(Span span);
  std::vector<Span> kept;
  uint64_t left_out = 0;
};

std::string timeline_svg(const Spans& spans);
// Returns a trace that chrome://tracing and Perfetto read: a rank is a process, a row a thread.
std::string timeline_trace(const Spans& spans);

}  // namespace sim::driver
