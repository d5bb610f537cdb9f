// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The lines of a manifest as problems of the library.
#pragma once

#include <string>
#include <vector>

#include "api/cli/handles.h"
#include "api/cli/problem.h"

namespace lathe::cli {

struct ManifestLine {
  size_t number = 0;  // of the first of equal ones
  std::string text;   // canonical
  ProblemHandle problem;
};

// Each problem once; "-" is standard input. Refuses, naming the line, what the library cannot read.
std::vector<ManifestLine> read_manifest(const std::string& path);

// What a line of ManifestLine::text says, but for mods and group, as the command line's verbs
// have it.
struct LineParts {
  const lathe_operator_info* op = nullptr;
  Specs tensors;
  Settings settings;
};
LineParts parts_of(const std::string& text);

}  // namespace lathe::cli
