// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// `run` and `check` share their command line (docs/program.md) and its execution.
#pragma once

#include "api/cli/execute.h"
#include "api/cli/options.h"

namespace lathe::cli {

struct RunOptions {
  std::string op, input, output;
  // As given; "": not given. `table`: the file of --ranges.
  std::string ranks, rotate, balance, table;
  bool rank_invariant = false;
  std::vector<std::string> set;
  int alignment = kBestAlignment;
  DeviceOptions device;
  bool json = false;
  bool quiet = false;
};
void add_run_flags(CLI::App* verb, RunOptions* options, const std::vector<std::string>& devices);

// Everything that can be refused before a device is touched.
struct Task {
  Problem problem;
  TensorMap inputs;
  Ranks ranks;
};
Task load_task(const RunOptions& options);

}  // namespace lathe::cli
