// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The table of devices.
#include "codegen/device_facts.h"

#include <doctest/doctest.h>

using namespace lathe;

TEST_CASE("every supported architecture has complete facts") {
  CHECK(supported_archs() ==
        std::vector<std::string>{"sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_120"});
  for (const std::string& arch : supported_archs()) {
    CAPTURE(arch);
    const auto facts = facts_of_arch(arch);
    REQUIRE(facts.ok());
    CHECK(facts->arch == arch);
    CHECK(facts->multiprocessors > 0);
    CHECK(facts->shared_bytes_per_block >= 48 * 1024);
    CHECK(facts->shared_bytes_per_multiprocessor > facts->shared_bytes_per_block);
    CHECK(facts->l2_bytes > 0);
    CHECK(facts->memory_bytes_per_second > 1e11);
  }
}

TEST_CASE("an unknown architecture is refused with those there are") {
  for (const char* arch : {"sm_75", "sm_90b", "90a", ""}) {
    const auto facts = facts_of_arch(arch);
    REQUIRE(!facts.ok());
    CHECK(facts.status().code() == Code::unsupported);
    CHECK(facts.status().text().find("sm_90a") != std::string::npos);
    CHECK(facts.status().text().find(std::string("'") + arch + "'") != std::string::npos);
  }
}

TEST_CASE("compute capability to architecture") {
  struct Case {
    int major, minor;
    const char* arch;  // empty: refused
  };
  for (const Case& c :
       {Case{8, 0, "sm_80"}, Case{8, 6, "sm_86"}, Case{8, 7, "sm_80"}, Case{8, 9, "sm_89"},
        Case{9, 0, "sm_90a"}, Case{10, 0, "sm_100"}, Case{10, 3, "sm_100"}, Case{12, 0, "sm_120"},
        Case{12, 1, "sm_120"}, Case{7, 5, ""}, Case{9, 1, ""}, Case{13, 0, ""}}) {
    CAPTURE(c.major);
    CAPTURE(c.minor);
    const auto arch = arch_of_capability(c.major, c.minor);
    CHECK((arch.ok() ? *arch : "") == std::string(c.arch));
  }
}
