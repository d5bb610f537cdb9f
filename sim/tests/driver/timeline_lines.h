// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The lines that LATHE_SIM_TIMELINE leaves, read back.
#pragma once

#include <tuple>

#include "sim/tests/child.h"

namespace sim::tests {

struct Line {
  std::string kind, name;
  int rank = -1;
  double begin = 0, end = 0;
  uint64_t stream = 0, bytes = 0, sampled = 0;
  int peer = -1;
};

inline std::string member(const std::string& line, const std::string& name) {
  const size_t at = line.find("\"" + name + "\":");
  if (at == std::string::npos) return "0";
  const size_t from = at + name.size() + 3;
  if (line[from] == '"') return line.substr(from + 1, line.find('"', from + 1) - from - 1);
  return line.substr(from, line.find_first_of(",}", from) - from);
}

inline std::vector<Line> read_timeline(const std::string& path) {
  std::istringstream text(content(path));
  std::vector<Line> lines;
  for (std::string line; std::getline(text, line);) {
    Line one;
    one.kind = member(line, "kind"), one.name = member(line, "name");
    one.rank = std::stoi(member(line, "rank")), one.peer = std::stoi(member(line, "peer"));
    one.begin = std::stod(member(line, "begin")), one.end = std::stod(member(line, "end"));
    one.stream = std::stoull(member(line, "stream")),
    one.bytes = std::stoull(member(line, "bytes"));
    one.sampled = std::stoull(member(line, "sampled_blocks"));
    lines.push_back(one);
  }
  const auto key = [](const Line& l) {
    return std::make_tuple(l.rank, l.begin, l.end, l.stream, l.kind);
  };
  std::sort(lines.begin(), lines.end(),
            [&](const Line& a, const Line& b) { return key(a) < key(b); });
  return lines;
}

// Returns the line of `kind` with this index, in the order of rank, then begin.
inline Line of_kind(const std::vector<Line>& lines, const std::string& kind, size_t index) {
  size_t seen = 0;
  for (const Line& line : lines) {
    if (line.kind == kind && seen++ == index) return line;
  }
  FAIL("no line ", index, " of kind ", kind, " among ", lines.size());
  return {};
}

inline void check_span(const Line& line, double begin, double end) {
  CAPTURE(line.kind);
  CAPTURE(line.name);
  CHECK(line.begin == doctest::Approx(begin));
  CHECK(line.end == doctest::Approx(end));
}

inline std::vector<Line> timeline_of(const char* name, const std::function<int()>& body,
                                     Environment environment = {}) {
  const std::string path = path_of(name);
  environment.insert({{"LATHE_SIM_TIMELINE", path}, {"LATHE_SIM_GPU", "h100"}});
  const Child child = in_child(environment, body);
  CHECK(child.status == 0);
  CHECK(child.error == "");
  return read_timeline(path);
}

}  // namespace sim::tests
