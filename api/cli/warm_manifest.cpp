// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "api/cli/warm_manifest.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <set>

namespace lathe::cli {
namespace {

std::string text_of(const lathe_problem* problem) {
  size_t needed = 0;
  check(lathe_problem_text(problem, nullptr, 0, &needed));
  std::string text(needed, '\0');
  check(lathe_problem_text(problem, text.data(), text.size(), nullptr));
  text.pop_back();
  return text;
}

}  // namespace

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
    lathe_problem* raw = nullptr;
    if (lathe_problem_parse(&raw, text.data(), text.size()) != LATHE_OK) {
      refuse("manifest " + in_quotes(path) + " line " + std::to_string(number) + ": " +
             lathe_last_error());
    }
    ManifestLine line{number, {}, ProblemHandle(raw)};
    line.text = text_of(raw);
    if (known.insert(line.text).second) lines.push_back(std::move(line));
  }
  if (from.bad()) refuse("manifest " + in_quotes(path) + " cannot be read to its end");
  return lines;
}

}  // namespace lathe::cli
