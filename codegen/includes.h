// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Include lines of device text, found without evaluating #if: when the text is embedded and when a
// unit is hashed.
#pragma once

#include <string_view>

namespace lathe {

// The name in an `#include "name"` or `#include <name>` line; empty if the line is another.
std::string_view included_name(std::string_view line);

// visit(name) for each include line, until it returns false; whether it never did.
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

}  // namespace lathe
