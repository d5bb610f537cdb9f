// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "cache/metadata.h"

#include <algorithm>

namespace lathe {
namespace {

struct Line {
  size_t at, bytes;  // with its newline
  std::string_view name, value;
};

// Every line of what set and parse let in, until visit(line) returns false.
template <typename Visit>
void for_each_line(std::string_view lines, Visit visit) {
  for (size_t at = 0; at < lines.size();) {
    const size_t equals = lines.find('=', at), end = lines.find('\n', equals);
    if (!visit(Line{at, end + 1 - at, lines.substr(at, equals - at),
                    lines.substr(equals + 1, end - equals - 1)}))
      return;
    at = end + 1;
  }
}

}  // namespace

Metadata::Metadata(std::initializer_list<std::pair<std::string_view, std::string_view>> values) {
  for (const auto& [name, value] : values) set(name, value);
}

Result<Metadata> Metadata::parse(std::string lines) {
  const auto bad = [](const char* what) { return Status(Code::cache_io, what); };
  std::string_view before, left = lines;
  while (!left.empty()) {
    const size_t end = left.find('\n');
    const size_t equals = left.find('=');
    if (end == left.npos || equals == left.npos || equals > end)
      return bad("the metadata holds a line that is not name=value");
    const std::string_view name = left.substr(0, equals);
    if (left.data() != lines.data() && name <= before) return bad("the metadata is not sorted");
    before = name;
    left.remove_prefix(end + 1);
  }
  Metadata out;
  out.lines_ = std::move(lines);
  return out;
}

void Metadata::set(std::string_view name, std::string_view value) {
  size_t at = lines_.size(), bytes = 0;  // what is replaced
  for_each_line(lines_, [&](const Line& line) {
    if (line.name < name) return true;
    at = line.at;
    if (line.name == name) bytes = line.bytes;
    return false;
  });
  std::string line(name);
  line += '=';
  line += value;
  // A compiler's banner is not ours to trust.
  std::replace(line.begin(), line.end(), '\n', ' ');
  lines_.replace(at, bytes, line += '\n');
}

std::optional<std::string_view> Metadata::find(std::string_view name) const {
  std::optional<std::string_view> found;
  for_each_line(lines_, [&](const Line& line) {
    if (line.name == name) found = line.value;
    return line.name < name;
  });
  return found;
}

size_t Metadata::size() const {
  return static_cast<size_t>(std::count(lines_.begin(), lines_.end(), '\n'));
}

}  // namespace lathe
