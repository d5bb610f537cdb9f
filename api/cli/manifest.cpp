// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "api/cli/manifest.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

namespace lathe::cli {
namespace {

bool takes_file(const lathe_operator_info* op, const std::string& option) {
  const auto takes = [&](const lathe_operator_option& each) {
    return each.name == option && std::string_view(each.allowed).find("FILE") != option.npos;
  };
  return std::ranges::any_of(options_of(*op), takes);
}

std::string text_of(const lathe_problem* problem) {
  size_t needed = 0;
  check(lathe_problem_text(problem, nullptr, 0, &needed));
  std::string text(needed, '\0');
  check(lathe_problem_text(problem, text.data(), text.size(), nullptr));
  text.pop_back();
  return text;
}

// Holds what a line of ManifestLine::text says, but for mods and group, as the command line's verbs
// have it.
struct LineParts {
  const lathe_operator_info* op = nullptr;
  Specs tensors;
  Settings settings;
};

LineParts parts_of(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  LineParts parts;
  parts.op = find_operator(json["op"].get<std::string>());
  for (const auto& [name, value] : json["tensors"].items()) {
    parts.tensors[name] = {find_dtype(&DtypeInfo::word, value[0].get<std::string>())->dtype,
                           value[1].get<std::vector<int64_t>>()};
  }
  if (!json.contains("options")) return parts;
  for (const auto& [name, value] : json["options"].items()) {
    if (takes_file(parts.op, name)) continue;
    parts.settings.emplace_back(name, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return parts;
}

using Manifest = std::unique_ptr<lathe_manifest, Destroyer<lathe_manifest_destroy>>;

using Known = std::map<std::string, int64_t>;  // dim -> extent

Known parse_extents(const std::vector<std::string>& texts) {
  Known out;
  for (const std::string& text : texts) {
    const auto [dim, extent] = parse_pair("--extent", text, "LETTER=NUMBER, such as T=8192");
    out[dim] = parse_int("--extent " + dim, extent, 0, INT64_MAX);
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
      if (info.shape[d] != -1) continue;
      const auto found = known.find(info.dims[d]);
      if (found == known.end()) {
        refuse("tensor ", in_quotes(name), ": ", info.dims[d], " is open, but what is measured ",
               "has an extent: give --extent ", info.dims[d], "=NUMBER");
      }
      spec.shape[d] = found->second + info.added[d];
    }
  }
  Problem problem = make_problem(open.op, open.settings, specs);
  problem.alignment = open.alignment;
  return problem;
}

// Refuses a problem of which an extent is open.
void require_extents(const Problem& problem) {
  for (const auto* specs : {&problem.inputs, &problem.outputs}) {
    for (const auto& [name, spec] : *specs) {
      if (std::ranges::count(spec.shape, -1) == 0) continue;
      refuse("tensor ", in_quotes(name), " is ", shape_text(spec.shape),
             ", but what is measured needs every extent (no -1)");
    }
  }
}

Problem problem_of_line(const std::string& text, const Known& known) {
  if (nlohmann::json::parse(text).contains("group")) {
    refuse("it has a group: ranks are tuned where they run (lathe_tune)");
  }
  const LineParts parts = parts_of(text);
  return filled(make_problem(parts.op, parts.settings, parts.tensors), known);
}

}  // namespace

std::vector<ManifestLine> read_manifest(const std::string& path) {
  std::ifstream file;
  if (path != "-") {
    file.open(path);
    if (!file) refuse("manifest ", in_quotes(path), " cannot be read: ", std::strerror(errno));
  }
  std::istream& from = path == "-" ? std::cin : file;
  const Manifest manifest = made<Manifest>(lathe_manifest_create);
  std::string text;
  while (std::getline(from, text)) {
    try {
      check(lathe_manifest_read(manifest.get(), text.data(), text.size()));
    } catch (const Failure& failure) {
      refuse("manifest ", in_quotes(path), " ", failure.what());
    }
  }
  if (from.bad()) refuse("manifest ", in_quotes(path), " cannot be read to its end");
  std::vector<ManifestLine> lines(lathe_manifest_count(manifest.get()));
  for (size_t i = 0; i < lines.size(); ++i) {
    const lathe_problem* problem = nullptr;
    check(lathe_manifest_problem(manifest.get(), i, &problem, &lines[i].number));
    lines[i].text = text_of(problem);
    lines[i].problem =
        made<ProblemHandle>(lathe_problem_parse, lines[i].text.data(), lines[i].text.size());
  }
  return lines;
}

std::vector<TuneProblem> problems_of_manifest(const std::string& path,
                                              const std::vector<std::string>& extents) {
  const Known known = parse_extents(extents);
  std::vector<TuneProblem> out;
  for (ManifestLine& line : read_manifest(path)) {
    const std::string where = "line " + std::to_string(line.number);
    try {
      out.push_back({where, problem_of_line(line.text, known), std::move(line.problem)});
    } catch (const Failure& failure) {
      refuse("manifest ", in_quotes(path), " ", where, ": ", failure.what());
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
