// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These functions read variables of the environment: texts, and whole numbers in a range.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace sim {

// Returns "" if the variable is not set.
inline std::string environment_text(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

inline std::string refusal(const char* name, const std::string& given, const std::string& allowed) {
  return std::string(name) + " is \"" + given + "\"; allowed: " + allowed;
}

// Keeps *out where the variable is not set. Accepts hexadecimal too. On false, `what` says what is
// allowed.
inline bool environment_number(const char* name, uint64_t low, uint64_t high, uint64_t* out,
                               std::string* what) {
  const std::string given = environment_text(name);
  if (given.empty()) return true;
  char* end = nullptr;
  errno = 0;
  const unsigned long long value = std::strtoull(given.c_str(), &end, 0);
  const bool digits = given[0] >= '0' && given[0] <= '9' && *end == '\0' && errno == 0;
  if (digits && value >= low && value <= high) {
    *out = value;
    return true;
  }
  *what = refusal(name, given, std::to_string(low) + " to " + std::to_string(high));
  return false;
}

}  // namespace sim
