// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The only reader of the environment: one table. scripts/docs writes docs/environment.md from it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lathe {

struct EnvironmentVariable {
  const char* name;
  const char* fallback;  // what holds when it is unset, in words
  const char* meaning;   // one sentence
};

const std::vector<EnvironmentVariable>& environment_table();

// The value of a variable of the table; nothing if unset, empty, or if the process runs with raised
// privileges (AT_SECURE). Never called on the launch path.
std::optional<std::string> environment(const char* name);

// A whole number from 0; `fallback` if unset, or, with a warning, if it is anything else.
int64_t environment_number(const char* name, int64_t fallback);

// Like environment(), for a variable that another program defines and that is not a setting of
// ours: what a launcher says about ranks (collective/launch.cpp).
std::optional<std::string> environment_raw(const char* name);

}  // namespace lathe
