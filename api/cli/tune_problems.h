// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What is to be tuned: one problem of the command line, or those of a manifest, with every extent.
#pragma once

#include "api/cli/options.h"

namespace lathe::cli {

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
