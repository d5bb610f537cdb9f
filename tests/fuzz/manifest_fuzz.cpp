// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This target fuzzes lines of a manifest. Whatever the bytes: reading refuses with a sentence, or
// gives a problem whose line is ASCII without a newline and reads as a problem of the same line.
// Each input is looked at as a line, and as the inside of one of some operator.
#include <algorithm>

#include "api/cache/manifest.h"
#include "tests/fuzz/property.h"

using namespace lathe;

namespace {

void check_line(std::string_view line) {
  const auto problem = parse_problem(line);
  if (!problem.ok()) {
    const Code code = problem.status().code();
    FUZZ_CHECK(code == Code::invalid_argument || code == Code::unsupported);
    FUZZ_CHECK(!problem.status().text().empty());
    return;
  }
  const std::string text = problem_text(**problem);
  FUZZ_CHECK(std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c < 127; }));
  const auto again = parse_problem(std::string_view(text));
  FUZZ_CHECK(again.ok());
  FUZZ_CHECK(problem_text(**again) == text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view input = fuzz::as_text(data, size);
  check_line(input);
  const auto all = operators();
  const Operator& op = all[fuzz::take_number(input, 1) % all.size()];
  check_line(R"({"op":")" + std::string(op.name) + R"(",)" + std::string(input) + "}");
  return 0;
}
