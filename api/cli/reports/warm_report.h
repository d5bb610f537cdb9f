// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What `lathe warm` says: while it works, and at the end line by line.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "api/cli/reports/progress.h"
#include "api/cli/reports/report.h"

namespace lathe::cli {

// Whom kernels are made for.
struct WarmTarget {
  std::string arch, gpu;  // gpu "": what stands for the architecture
  Context context;

  std::string word() const { return gpu.empty() ? arch : gpu + " (" + arch + ")"; }
};

// A line of the manifest for one target: an item of the warming, in the same order.
struct WarmLine {
  size_t number = 0;
  const WarmTarget* target = nullptr;
};

// What is left, by the time that compiles have taken so far: what was found took none.
double seconds_left(double spent, size_t done, size_t total, size_t compiled);

// A bar on a terminal, elsewhere a line now and then.
class WarmProgress {
 public:
  WarmProgress();
  void count(size_t done, size_t total, size_t compiled);

 private:
  Progress bar_{"warming"};
  const bool lines_;
  const std::chrono::steady_clock::time_point start_;
  double told_ = 0;
};

// What was packed, if anything.
struct WarmBundle {
  std::string path;
  Json report;
};

struct WarmTotals {
  uint64_t kernels = 0, compiled = 0, hits = 0, left = 0;
};
WarmTotals totals_of(const lathe_warming* warming);

// Failures on standard error, the rest on standard output.
void report_warming(const lathe_warming* warming, const std::vector<WarmLine>& lines,
                    const WarmBundle& bundle, bool json);

}  // namespace lathe::cli
