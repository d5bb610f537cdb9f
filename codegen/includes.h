// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Include lines of device text, found without evaluating #if: when the text is embedded and when a
// unit is hashed.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace lathe {

// The name in an `#include "name"` or `#include <name>` line; empty if the line is another.
inline std::string_view included_name(std::string_view line) {
  const auto skip_blanks = [&line] {
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  };
  skip_blanks();
  if (line.empty() || line[0] != '#') return {};
  line.remove_prefix(1);
  skip_blanks();
  constexpr std::string_view kInclude = "include";
  if (line.substr(0, kInclude.size()) != kInclude) return {};
  line.remove_prefix(kInclude.size());
  skip_blanks();
  if (line.empty() || (line[0] != '"' && line[0] != '<')) return {};
  const char close = line[0] == '"' ? '"' : '>';
  const size_t end = line.find(close, 1);
  return end == std::string_view::npos ? std::string_view{} : line.substr(1, end - 1);
}

// Calls visit(name) for each include line, until it returns false. True if it never did.
template <typename Visit>
bool for_each_include(std::string_view source, Visit visit) {
  while (!source.empty()) {
    const size_t end = source.find('\n');
    const std::string_view name = included_name(source.substr(0, end));
    source.remove_prefix(end == source.npos ? source.size() : end + 1);
    if (!name.empty() && !visit(name)) return false;
  }
  return true;
}

// Returns the text with the include lines of parameters as device text has them. Parameters name
// each other for the host, from the root of the tree.
inline std::string for_device(std::string text) {
  constexpr std::string_view kHost = "#include \"templates/params/", kDevice = "#include \"params/";
  for (size_t at = text.find(kHost); at != text.npos; at = text.find(kHost, at)) {
    text.replace(at, kHost.size(), kDevice);
  }
  return text;
}

}  // namespace lathe
