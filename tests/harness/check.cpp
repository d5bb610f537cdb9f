// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/harness/check.h"

#include <algorithm>
#include <bit>
#include <map>

#include "tests/compare.h"

namespace apitest {

void check_findings(const Answer& answer) {
  CHECK(answer.error == "");
  for (const std::string& finding : answer.findings) FAIL_CHECK(finding);
}

// A block of threads that sorts exchanges values by places that the values decide.
static bool sorts(const Answer& answer, const nlohmann::json& launch) {
  const auto is_order = [](const Kernel& kernel) {
    return kernel.spec.starts_with("attention_ragged_order ");
  };
  return launch.at("grid") == nlohmann::json({1, 1, 1}) && launch.at("block")[0] == 512 &&
         std::ranges::any_of(answer.kernels, is_order);
}

void check_clean(const Answer& answer) {
  check_findings(answer);
  for (const auto& launch : answer.launches) {
    if (sorts(answer, launch)) continue;
    CAPTURE(launch.dump());
    CHECK(launch.at("shared_load_conflicts") == 0);
    CHECK(launch.at("shared_store_conflicts") == 0);
  }
}

void check_no_spills(const Answer& answer) {
  for (const Kernel& kernel : answer.kernels) {
    CAPTURE(kernel.spec);
    CHECK(kernel.spill_bytes == 0);
    CHECK(kernel.stack_bytes == 0);
  }
}

Answer run(lathe_context* context, const Call& call) {
  Answer answer = execute(context, call);
  check_clean(answer);
  return answer;
}

lathe_context* shared_context() {
  static std::map<std::string, Context> made;
  Context& context = made[family != nullptr ? family : ""];
  if (context == nullptr) context = make_context();
  return context.get();
}

Answer run(const Call& call) { return run(shared_context(), call); }

void check_same(const Outputs& found, const Outputs& expected) {
  REQUIRE(found.size() == expected.size());
  for (const auto& [name, values] : expected) {
    CAPTURE(name);
    CHECK((found.at(name) == values));
  }
}

void check_near(const Values& found, const Values& expected, double tolerance, double relative,
                const std::string& name) {
  CAPTURE(name);
  REQUIRE(found.size() == expected.size());
  size_t wrong = 0, first = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const double allowed = tolerance + relative * std::abs(expected[i]);
    const bool same = found[i] == expected[i];  // infinities
    if (same || (std::isfinite(expected[i]) && std::abs(found[i] - expected[i]) <= allowed)) {
      continue;
    }
    if (wrong++ == 0) first = i;
  }
  if (wrong == 0) return;
  FAIL_CHECK(name << "[" << first << "] is " << found[first] << " for " << expected[first] << "; "
                  << wrong << " of " << found.size() << " are wrong");
}

void check_rms(const std::string& name, const Values& found, const Values& expected, double bound,
               double atol) {
  const auto verdict = compare::compare(name, found, expected, {std::ssize(expected)},
                                        {compare::Rule::kRms, bound, atol});
  CHECK_MESSAGE(verdict.ok, verdict.text);
}

bool same_bits(const Values& a, const Values& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](double x, double y) {
    return std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y);
  });
}

}  // namespace apitest
