// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Builds messages.
#pragma once

#include <functional>
#include <locale>
#include <sstream>
#include <string>

namespace lathe {

// text("width is ", 9, ", allowed are 2..8"): the arguments one after another, numbers as C++
// writes them whatever the program's locale.
template <typename... Args>
std::string text(const Args&... args) {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  (out << ... << args);
  return out.str();
}

// "a, b, c": the names of the items, by a function or a member of theirs.
template <typename List, typename NameOf = std::identity>
std::string comma_list(const List& list, NameOf name_of = {}) {
  std::string out;
  for (const auto& item : list) {
    if (!out.empty()) out += ", ";
    out += std::invoke(name_of, item);
  }
  return out;
}

}  // namespace lathe
