// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Problems of a manifest, for warming and for tuning, which wants every extent.
#pragma once

#include <string>
#include <vector>

#include "api/cli/handles.h"
#include "api/cli/options.h"
#include "api/cli/problem.h"

namespace lathe::cli {

struct ManifestLine {
  size_t number = 0;  // of the first of equal ones
  std::string text;   // canonical
  ProblemHandle problem;
};

// Each problem once; "-" is standard input. Refuses, naming the line, what the library cannot read.
std::vector<ManifestLine> read_manifest(const std::string& path);

struct TuneProblem {
  std::string where;  // "line 3"; "" of the command line
  Problem problem;
  ProblemHandle handle;  // what plans are made of: open where extents vary
};

// `extents`: "T=8192", for dims that are open. Refuses what stays open, and lines with a group.
std::vector<TuneProblem> problems_of_manifest(const std::string& path,
                                              const std::vector<std::string>& extents);
TuneProblem problem_of_flags(const ProblemOptions& options,
                             const std::vector<std::string>& extents);

}  // namespace lathe::cli
