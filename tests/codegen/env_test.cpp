// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the environment table and its reader.
#include "codegen/base/env.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <set>
#include <string>

using namespace lathe;

TEST_CASE("each variable is listed once, with a meaning and a default in words") {
  std::set<std::string> names;
  for (const EnvironmentVariable& variable : environment_table()) {
    CAPTURE(variable.name);
    CHECK(names.insert(variable.name).second);
    CHECK(std::string(variable.fallback).size() > 1);
    CHECK(std::string(variable.meaning).back() == '.');
  }
}

TEST_CASE("values: set, empty, unset, and not in the table") {
  setenv("LATHE_NVRTC", "/somewhere/libnvrtc.so", 1);
  CHECK(environment("LATHE_NVRTC") == "/somewhere/libnvrtc.so");
  setenv("LATHE_NVRTC", "", 1);
  CHECK_FALSE(environment("LATHE_NVRTC"));
  unsetenv("LATHE_NVRTC");
  CHECK_FALSE(environment("LATHE_NVRTC"));
  setenv("LATHE_NOT_IN_THE_TABLE", "1", 1);
  CHECK_FALSE(environment("LATHE_NOT_IN_THE_TABLE"));
}
