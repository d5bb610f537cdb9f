// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "codegen/includes.h"

#include <algorithm>

namespace lathe {

std::string_view included_name(std::string_view line) {
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

}  // namespace lathe
