// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The CUDA programs of this folder are compiled by NVRTC with the headers of the CUDA tool kit, and
// run under every check with several seeds and policies.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "sim/tests/kernel_run.h"
#include "sim/tests/nvrtc.h"

namespace sim::test {

struct Schedule {
  uint64_t seed;
  AsyncPolicy policy;
};

// Twenty seeds times three policies if scripts/test --exhaustive asks for a part of the cases (a
// policy is a part of them), else a few.
inline std::vector<Schedule> schedules() {
  constexpr AsyncPolicy kPolicies[] = {AsyncPolicy::lazy, AsyncPolicy::eager, AsyncPolicy::random};
  const char* const part = std::getenv("LATHE_TEST_SHARD");
  if (part == nullptr)
    return {{0, AsyncPolicy::lazy}, {1, AsyncPolicy::eager}, {2, AsyncPolicy::random}};
  std::vector<Schedule> all;
  const int policy = std::atoi(part) % 3;
  for (uint64_t seed = 0; seed < 20; ++seed) all.push_back({seed, kPolicies[policy]});
  return all;
}

// Returns the PTX of a program of this folder. Where there is no compiler, or its tool kit has not
// the header that the program needs, says so and returns an empty text.
inline std::string compile_program(const std::string& name, const std::string& arch,
                                   const std::string& header,
                                   const std::vector<std::string>& options = {}) {
  static Nvrtc nvrtc;
  const std::filesystem::path include = SIM_CUDA_INCLUDE;
  std::string why = nvrtc.available() ? "" : "libnvrtc.so cannot be opened";
  if (why.empty() && !header.empty() && !std::filesystem::exists(include / header)) {
    why = "the tool kit has no " + header;
  }
  if (!why.empty()) {
    MESSAGE("skipped: ", name, ", as ", why);
    return "";
  }
  std::ifstream file(SIM_PROGRAMS "/" + name);
  std::stringstream text;
  text << file.rdbuf();
  REQUIRE(!text.str().empty());
  std::string log;
  std::vector<std::string> all = {"-std=c++17", "-I" + (include / "cccl").string()};
  all.insert(all.end(), options.begin(), options.end());
  const std::string ptx = nvrtc.compile(text.str(), arch, &log, all);
  INFO(log);
  REQUIRE(!ptx.empty());
  return ptx;
}

// Runs `body` on a device of each architecture of `archs` that has loaded a program, with each
// schedule.
template <class F>
void on_devices(const std::string& program, const std::string& header, F body,
                const std::vector<std::string>& archs = {"sm_80", "sm_90a"}) {
  for (const std::string& arch : archs) {
    const std::string ptx = compile_program(program, arch, header);
    if (ptx.empty()) return;
    Device device(arch);
    device.settings.check |= kRegcheck;
    device.load(ptx);
    device.settings.instruction_limit = 400'000'000;
    for (const Schedule& schedule : schedules()) {
      CAPTURE(arch);
      CAPTURE(schedule.seed);
      device.settings.seed = schedule.seed;
      device.settings.async_policy = schedule.policy;
      body(device);
    }
  }
}

// Checks that there is neither an error nor a finding.
inline bool check_clean(const Outcome& o) {
  INFO(texts(o));
  CHECK(o.error == 0);
  CHECK(o.findings.empty());
  return o.error == 0 && o.findings.empty();
}

}  // namespace sim::test
