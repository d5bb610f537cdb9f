// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the table of devices.
#include "codegen/device_facts.h"

#include <doctest/doctest.h>

#include <cmath>

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
    CHECK(facts->tensor_ops_per_second > 1e13);
    CHECK_FALSE(facts->gpu.empty());
  }
}

TEST_CASE("every GPU's rate is what its multiprocessors can do in a clock") {
  for (const std::string& name : known_gpus()) {
    CAPTURE(name);
    const auto facts = facts_of_gpu(name);
    REQUIRE(facts.ok());
    CHECK(facts->gpu == name);
    CHECK(facts_of_arch(facts->arch).ok());
    CHECK(facts->memory_bytes_per_second > 1e11);
    // Operations of a multiprocessor and clock are a power of two on every generation.
    const double per_clock =
        facts->tensor_ops_per_second / facts->multiprocessors / facts->clock_hz;
    const double exponent = std::log2(per_clock);
    CHECK(per_clock >= 500);
    CHECK(std::abs(exponent - std::round(exponent)) < 0.03);
  }
  CHECK(facts_of_gpu("H200")->memory_bytes_per_second == 4.8e12);
  const auto unknown = facts_of_gpu("h300");
  REQUIRE_FALSE(unknown.ok());
  CHECK(unknown.status().text().find("'h300' is not known; known are a100") != std::string::npos);
}

TEST_CASE("a device's published rates are found by the driver's name for it") {
  const struct {
    const char *driver, *arch, *gpu;
  } names[] = {
      {"NVIDIA A100-SXM4-80GB", "sm_80", "a100"},
      {"NVIDIA A100-SXM4-40GB", "sm_80", "a100-40gb"},
      {"NVIDIA A100-PCIE-40GB", "sm_80", "a100"},
      {"NVIDIA A10", "sm_86", "a10"},
      {"NVIDIA A40", "sm_86", "a40"},
      {"NVIDIA L4", "sm_89", "l4"},
      {"NVIDIA L40", "sm_89", "l40"},
      {"NVIDIA L40S", "sm_89", "l40s"},
      {"NVIDIA GeForce RTX 4090", "sm_89", "rtx4090"},
      {"NVIDIA H100 80GB HBM3", "sm_90a", "h100"},
      {"NVIDIA H100 PCIe", "sm_90a", "h100-pcie"},
      {"NVIDIA H200", "sm_90a", "h200"},
      {"NVIDIA B200", "sm_100", "b200"},
      {"NVIDIA Something New", "sm_89", "l40s"},  // the representative
  };
  for (const auto& [driver, arch, gpu] : names) {
    CAPTURE(driver);
    DeviceFacts facts;
    facts.arch = arch;
    facts.multiprocessors = 7;
    add_published_rates(driver, &facts);
    CHECK(facts.gpu == gpu);
    CHECK(facts.multiprocessors == 7);
    CHECK(facts.tensor_ops_per_second == facts_of_gpu(gpu)->tensor_ops_per_second);
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
