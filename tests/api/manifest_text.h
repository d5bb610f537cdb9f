// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These functions make the lines of a manifest for a problem, and the problem of a line.
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "tests/harness/support.h"

namespace manifest {

inline std::string text_of(const lathe_problem* problem) {
  size_t needed = 0;
  REQUIRE_MESSAGE(lathe_problem_text(problem, nullptr, 0, &needed) == LATHE_OK, test::error());
  std::string text(needed, '?');
  REQUIRE(lathe_problem_text(problem, text.data(), text.size(), nullptr) == LATHE_OK);
  REQUIRE(text.back() == '\0');
  text.pop_back();
  return text;
}

inline test::Problem parse(const std::string& line) {
  lathe_problem* problem = nullptr;
  lathe_problem_parse(&problem, line.data(), line.size());
  return test::Problem(problem);
}

}  // namespace manifest
