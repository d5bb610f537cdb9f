// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "api/cli/warm_manifest.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

namespace lathe::cli {
namespace {

bool takes_file(const lathe_operator_info* op, const std::string& option) {
  for (size_t i = 0; i < op->option_count; ++i) {
    if (op->options[i].name != option) continue;
    return std::string(op->options[i].allowed).find("FILE") != std::string::npos;
  }
  return false;
}

std::string text_of(const lathe_problem* problem) {
  size_t needed = 0;
  check(lathe_problem_text(problem, nullptr, 0, &needed));
  std::string text(needed, '\0');
  check(lathe_problem_text(problem, text.data(), text.size(), nullptr));
  text.pop_back();
  return text;
}

ProblemHandle parse(const std::string& text) {
  lathe_problem* raw = nullptr;
  if (lathe_problem_parse(&raw, text.data(), text.size()) != LATHE_OK) refuse(lathe_last_error());
  return ProblemHandle(raw);
}

bool names_outputs(const LineParts& parts) {
  for (const auto& [name, spec] : parts.tensors) {
    const auto* tensor = find_tensor(parts.op, name);
    if (tensor->role == LATHE_OUTPUT && tensor->given_if == nullptr) return true;
  }
  return false;
}

// A line that names inputs alone asks for what `lathe run` makes of them.
ManifestLine parse_line(size_t number, const std::string& text) {
  ManifestLine line{number, {}, parse(text)};
  line.text = text_of(line.problem.get());
  const LineParts parts = parts_of(line.text);
  if (names_outputs(parts)) return line;
  auto json = nlohmann::json::parse(line.text);
  for (const auto& [name, spec] : make_problem(parts.op, parts.settings, parts.tensors).outputs) {
    json["tensors"][name] = {info(spec.dtype).word, spec.shape};
  }
  line.problem = parse(json.dump());
  line.text = text_of(line.problem.get());
  return line;
}

}  // namespace

LineParts parts_of(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  LineParts parts;
  parts.op = find_operator(json["op"].get<std::string>());
  for (const auto& [name, value] : json["tensors"].items()) {
    parts.tensors[name] = {find_dtype_word(value[0].get<std::string>())->dtype,
                           value[1].get<std::vector<int64_t>>()};
  }
  if (!json.contains("options")) return parts;
  for (const auto& [name, value] : json["options"].items()) {
    if (takes_file(parts.op, name)) continue;
    parts.settings.emplace_back(name, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return parts;
}

std::vector<ManifestLine> read_manifest(const std::string& path) {
  std::ifstream file;
  if (path != "-") {
    file.open(path);
    if (!file) refuse("manifest " + in_quotes(path) + " cannot be read: " + std::strerror(errno));
  }
  std::istream& from = path == "-" ? std::cin : file;
  std::vector<ManifestLine> lines;
  std::set<std::string> known;
  std::string text;
  for (size_t number = 1; std::getline(from, text); ++number) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      ManifestLine line = parse_line(number, text);
      if (known.insert(line.text).second) lines.push_back(std::move(line));
    } catch (const Failure& failure) {
      refuse("manifest " + in_quotes(path) + " line " + std::to_string(number) + ": " +
             failure.what());
    }
  }
  if (from.bad()) refuse("manifest " + in_quotes(path) + " cannot be read to its end");
  return lines;
}

}  // namespace lathe::cli
