// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Building messages.
#pragma once

#include <sstream>
#include <string>

namespace lathe {

// text("width is ", 9, ", allowed are 2..8"): the arguments one after another.
template <typename... Args>
std::string text(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

}  // namespace lathe
