// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "api/cli/tune_problems.h"

#include <nlohmann/json.hpp>

#include "api/cli/noise_inputs.h"
#include "api/cli/warm_manifest.h"

namespace lathe::cli {
namespace {

using Known = std::map<std::string, int64_t>;  // letter -> extent

Known parse_extents(const std::vector<std::string>& texts) {
  Known out;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      refuse("--extent is " + in_quotes(text) + ", expected LETTER=NUMBER, such as T=8192");
    }
    const std::string letter = text.substr(0, equals);
    out[letter] = parse_int("--extent " + letter, text.substr(equals + 1), 0, INT64_MAX);
  }
  return out;
}

void fill(const lathe_operator_info* op, const Known& known, Specs* specs) {
  for (auto& [name, spec] : *specs) {
    const auto* tensor = find_tensor(op, name);
    if (!tensor) continue;  // refused where the problem is made
    const auto names = letters(*tensor, spec.shape.size());
    for (size_t i = 0; i < spec.shape.size() && i < names.size(); ++i) {
      if (spec.shape[i] != -1) continue;
      const auto [letter, more] = parse_letter(names[i]);
      const auto found = known.find(letter);
      if (found == known.end()) {
        refuse("tensor " + in_quotes(name) + ": " + letter + " is open, but what is measured has " +
               "an extent: give --extent " + letter + "=NUMBER");
      }
      spec.shape[i] = found->second + more;
    }
  }
}

Problem problem_of_line(const std::string& text, const Known& known) {
  if (nlohmann::json::parse(text).contains("group")) {
    refuse("it has a group: ranks are tuned where they run (lathe_tune)");
  }
  LineParts parts = parts_of(text);
  fill(parts.op, known, &parts.tensors);
  return make_problem(parts.op, parts.settings, parts.tensors);
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
  if (!known.empty()) {
    Specs specs = problem.inputs;
    specs.insert(problem.outputs.begin(), problem.outputs.end());
    fill(problem.op, known, &specs);
    problem = make_problem(problem.op, problem.settings, specs);
  }
  require_extents(problem);
  ProblemHandle handle = declare(problem);
  return {"", std::move(problem), std::move(handle)};
}

}  // namespace lathe::cli
