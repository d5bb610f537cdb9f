// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Comparing key texts line by line: see nearest.h.
#include "cache/nearest.h"

#include <algorithm>

#include "codegen/base/text.h"

namespace lathe {
namespace {

bool contains(const std::vector<std::string_view>& lines, std::string_view line) {
  return std::find(lines.begin(), lines.end(), line) != lines.end();
}

// The first line of `asked` that `there` lacks, and the line of the same name in its place.
std::string first_difference(const std::vector<std::string_view>& asked,
                             const std::vector<std::string_view>& there) {
  for (std::string_view line : asked) {
    if (contains(there, line)) continue;
    const std::string_view name = line.substr(0, line.find_first_of("= ") + 1);
    for (std::string_view other : there)
      if (other.substr(0, name.size()) == name && !contains(asked, other))
        return text(line, " (there: ", other, ")");
    return text(line, " (nothing there)");
  }
  return {};
}

}  // namespace

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    out.push_back(text.substr(0, end));
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
  }
  return out;
}

std::string_view value_of(std::string_view text, std::string_view name) {
  for (std::string_view line : lines_of(text)) {
    if (line.size() > name.size() && line.substr(0, name.size()) == name &&
        line[name.size()] == '=')
      return line.substr(name.size() + 1);
  }
  return {};
}

NearestKey::NearestKey(std::string asked) : asked_(std::move(asked)), lines_(lines_of(asked_)) {}

void NearestKey::look_at(std::string_view key_text) {
  const std::vector<std::string_view> there = lines_of(key_text);
  const size_t same = static_cast<size_t>(std::count_if(
      lines_.begin(), lines_.end(), [&](std::string_view line) { return contains(there, line); }));
  if (!difference_.empty() && same <= most_) return;
  most_ = same;
  difference_ = first_difference(lines_, there);
}

}  // namespace lathe
