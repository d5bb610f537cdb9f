// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "api/cli/tune_problems.h"

#include <nlohmann/json.hpp>

#include "api/cli/inputs/noise_inputs.h"
#include "api/cli/warm_manifest.h"

namespace lathe::cli {
namespace {

using Known = std::map<std::string, int64_t>;  // dim -> extent

Known parse_extents(const std::vector<std::string>& texts) {
  Known out;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      refuse("--extent is " + in_quotes(text) + ", expected LETTER=NUMBER, such as T=8192");
    }
    const std::string dim = text.substr(0, equals);
    out[dim] = parse_int("--extent " + dim, text.substr(equals + 1), 0, INT64_MAX);
  }
  return out;
}

// Fills the open extents of a problem's tensors.
Problem filled(const Problem& open, const Known& known) {
  Specs specs;
  for (const auto& [name, info] : open.tensors) {
    TensorSpec& spec = specs[name];
    spec = {info.dtype, {info.shape, info.shape + info.rank}};
    for (int d = 0; d < info.rank; ++d) {
      if (spec.shape[static_cast<size_t>(d)] != -1) continue;
      const auto found = known.find(info.dims[d]);
      if (found == known.end()) {
        refuse("tensor " + in_quotes(name) + ": " + info.dims[d] +
               " is open, but what is measured "
               "has an extent: give --extent " +
               info.dims[d] + "=NUMBER");
      }
      spec.shape[static_cast<size_t>(d)] = found->second + info.added[d];
    }
  }
  return make_problem(open.op, open.settings, specs);
}

Problem problem_of_line(const std::string& text, const Known& known) {
  if (nlohmann::json::parse(text).contains("group")) {
    refuse("it has a group: ranks are tuned where they run (lathe_tune)");
  }
  const LineParts parts = parts_of(text);
  return filled(make_problem(parts.op, parts.settings, parts.tensors), known);
}

}  // namespace

std::vector<TuneProblem> problems_of_manifest(const std::string& path,
                                              const std::vector<std::string>& extents) {
  const Known known = parse_extents(extents);
  std::vector<TuneProblem> out;
  for (ManifestLine& line : read_manifest(path)) {
    const std::string where = "line " + std::to_string(line.number);
    try {
      out.push_back({where, problem_of_line(line.text, known), std::move(line.problem)});
    } catch (const Failure& failure) {
      refuse("manifest " + in_quotes(path) + " " + where + ": " + failure.what());
    }
  }
  return out;
}

TuneProblem problem_of_flags(const ProblemOptions& options,
                             const std::vector<std::string>& extents) {
  const Known known = parse_extents(extents);
  Problem problem = problem_from(options);
  if (!known.empty()) problem = filled(problem, known);
  require_extents(problem);
  ProblemHandle handle = declare(problem);
  return {"", std::move(problem), std::move(handle)};
}

}  // namespace lathe::cli
