// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The tests of lathe_tune share this file: a cache of kernels with a database of its own, a
// convolution on the simulator, and reading a report.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "tests/harness/support.h"

#define API(call) REQUIRE_MESSAGE((call) == LATHE_OK, #call ": ", test::error())

namespace tuning {

using test::Array;
using test::Builder;
using test::contains;
using test::error;
using test::pattern;
using test::Values;

// The simulator reads this variable when it is opened, which is once in a process.
inline const bool kTimeline = setenv("LATHE_SIM_TIMELINE", "/dev/null", 1) == 0;
// Memory that is never freed, like every other finding of the simulator, is a failure of the
// program.
inline const bool kFindings =
    setenv("LATHE_SIM_CHECK", "all", 1) == 0 && setenv("LATHE_SIM_ERROR_EXITCODE", "9", 1) == 0;

// A cache of its own for each case would compile everything again: kernels are shared through a
// first folder, whose database goes before each case.
struct Cache {
  static const test::Folder& folder() {
    static const test::Folder shared;
    return shared;
  }
  Cache() { std::filesystem::remove_all(folder().path + "/v1/tuned"); }
  static test::Context open() {
    REQUIRE((kTimeline && kFindings));
    auto context = test::make_context(LATHE_DEVICE_SIM, folder().path);
    REQUIRE_MESSAGE(context, error());
    return context;
  }
  static std::string file() { return folder().path + "/v1/tuned/h100.txt"; }
  static std::string database() {
    std::ifstream in(file());
    std::ostringstream all;
    all << in.rdbuf();
    return all.str();
  }
  static void store(const std::string& records) {
    std::filesystem::create_directories(folder().path + "/v1/tuned");
    for (const char* part : {"/v1", "/v1/tuned"}) {
      std::filesystem::permissions(folder().path + part, std::filesystem::perms::owner_all);
    }
    std::ofstream(file()) << "lathe-tuned 1\n" << records;
  }
};

inline std::string record(const std::string& problem_class, const std::string& choice,
                          const std::string& kernel = "causal_conv1d") {
  return kernel + " | " + problem_class + " | " + choice +
         " | gpu=h100 arch=sm_90a sms=132 shape=a(x:1) us=1.000 default_us=2.000 by=events\n";
}

// A Conv has a convolution's tensors on the device, and its problem.
struct Conv {
  static constexpr int64_t kTokens = 40, kChannels = 32;
  lathe_context* context;
  std::map<std::string, Array> arrays;
  Builder builder{"causal_conv1d"};

  explicit Conv(lathe_context* on, lathe_group* group = nullptr, int64_t tokens = kTokens)
      : context(on) {
    put("x", {1, tokens, kChannels}, pattern(static_cast<size_t>(tokens * kChannels), 1), -1);
    put("weight", {kChannels, 4}, pattern(kChannels * 4, 2), kChannels);
    put("y", {1, tokens, kChannels}, Values(static_cast<size_t>(tokens * kChannels), NAN), -1);
    REQUIRE_MESSAGE(builder.status == LATHE_OK, error());
    if (group) API(lathe_problem_group(builder.problem.get(), group, 0));
  }
  ~Conv() {
    for (auto& [name, array] : arrays) lathe_free(context, array.view.data);
  }
  void put(const std::string& name, std::vector<int64_t> shape, const Values& values,
           int64_t open) {
    void* data = nullptr;
    API(lathe_malloc(context, &data, values.size() * sizeof(float)));
    API(lathe_copy_to_device(context, data, values.data(), values.size() * sizeof(float), nullptr));
    arrays[name] = Array(LATHE_F32, shape, data);
    if (open < 0) shape[0] = shape[1] = -1;
    builder.tensor({name, LATHE_F32, shape});
  }
  Values get(const std::string& name) {
    const Array& array = arrays.at(name);
    size_t count = 1;
    for (const int64_t extent : array.shape) count *= static_cast<size_t>(extent);
    Values values(count);
    API(lathe_copy_to_host(context, values.data(), array.view.data, count * 4, nullptr));
    return values;
  }
  test::Plan plan() {
    lathe_plan* made = nullptr;
    API(lathe_plan_create(&made, context, builder.problem.get()));
    return test::Plan(made);
  }
  std::vector<const DLTensor*> slots(const lathe_plan* of) { return test::slots_of(of, arrays); }
  std::string spec() {
    const test::Plan made = plan();
    lathe_kernel_info info = {};
    info.size = sizeof(info);
    API(lathe_plan_kernel(made.get(), 0, &info));
    return info.spec;
  }
  lathe_tune_report tune(lathe_tune_options options) {
    const auto all = slots(plan().get());
    lathe_tune_report report = {};
    report.size = sizeof(report);
    const lathe_status status =
        lathe_tune(context, builder.problem.get(), all.data(), &options, &report);
    REQUIRE_MESSAGE(status == LATHE_OK, error());
    return report;
  }
  lathe_status refused(lathe_tune_options options) {
    const auto all = slots(plan().get());
    lathe_tune_report report = {};
    report.size = sizeof(report);
    return lathe_tune(context, builder.problem.get(), all.data(), &options, &report);
  }
};

// Returns whether a spec has the words of a choice such as "tokens=64 warps=4".
inline bool is_made_of(const std::string& spec, const std::string& choice) {
  const size_t warps = choice.rfind("warps=");
  const std::string threads =
      " threads=" + std::to_string(32 * std::stoi(choice.substr(warps + 6))) + " ";
  return contains(spec, threads) && contains(spec, " " + choice.substr(0, warps));
}

inline const lathe_tune_candidate& winner_of(const lathe_tune_report& report) {
  for (size_t i = 0; i < report.count; ++i) {
    const std::string verdict = report.candidates[i].verdict;
    if (verdict == "won" || verdict == "default") return report.candidates[i];
  }
  REQUIRE(false);
  return report.candidates[0];
}

}  // namespace tuning
