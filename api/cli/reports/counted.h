// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Counts a call's launches on the simulator of a named GPU, some thread blocks of each, with what
// its model of cost makes of them. The simulator is one device for a process, so each GPU is asked
// in a process of its own: the hidden verb `count` of this program.
#pragma once

#include "api/cli/options.h"
#include "api/cli/reports/report.h"

namespace lathe::cli {

struct CountRequest {
  ProblemOptions problem;
  std::string gpu, arch;  // "h200", "sm_90a"
  std::string cache_dir;  // as of DeviceOptions
};

struct Counts {
  Json launches;        // the simulator's lines
  std::string missing;  // why there are none; ""
};

Counts count_launches(const CountRequest& request);

}  // namespace lathe::cli
