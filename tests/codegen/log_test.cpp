// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the sink for warnings.
#include "codegen/base/log.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace lathe;

TEST_CASE("messages reach the sink with their level, and nothing without one") {
  std::vector<std::string> seen;
  const auto sink = [](void* user, int level, const char* message) {
    static_cast<std::vector<std::string>*>(user)->push_back(std::to_string(level) + " " + message);
  };
  log_message(LogLevel::warning, "dropped");
  set_log_sink(sink, &seen);
  log_message(LogLevel::warning, "first");
  log_message(LogLevel::debug, "second");
  set_log_sink(nullptr, nullptr);
  log_message(LogLevel::info, "dropped");
  CHECK(seen == std::vector<std::string>{"1 first", "3 second"});
}
