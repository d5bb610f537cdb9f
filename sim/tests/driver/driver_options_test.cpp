// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the variables of the simulator, in processes of their own: they are read once.
#include "sim/tests/child.h"
#include "sim/tests/driver/driver_client.h"
#include "sim/tests/driver/driver_kernels.h"

using namespace sim::tests;

namespace {

int start() { return cuda().init(0); }

// Loads kernels in PTX of a version; the driver's version is what LATHE_SIM_DRIVER_VERSION says.
int load_ptx(const std::string& version, int driver_version) {
  int answered = 0;
  if (cuda().driver_get_version(&answered) != CUDA_SUCCESS || answered != driver_version) return 1;
  CUcontext context = nullptr;
  cuda().init(0);
  cuda().device_primary_ctx_retain(&context, 0);
  cuda().ctx_push_current(context);
  std::string text = kernels();
  text.replace(text.find("8.0"), 3, version);
  CUmodule module = nullptr;
  const CUresult result = cuda().module_load_data(&module, text.c_str());
  return result == CUDA_SUCCESS ? 0 : result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION ? 2 : 3;
}

}  // namespace

TEST_CASE("values that are not allowed end cuInit and are named") {
  const struct {
    const char *name, *value, *says;
  } cases[] = {
      {"LATHE_SIM_CHECK", "memory", "asynccheck"},
      {"LATHE_SIM_CHECK", "memcheck,", "asynccheck"},
      {"LATHE_SIM_CHECK", "memcheck,none", "asynccheck"},
      {"LATHE_SIM_GPU", "b200", "h200"},
      {"LATHE_SIM_ARCH", "sm_70", "sm_90a"},
      {"LATHE_SIM_ASYNC", "late", "eager, lazy, random"},
      {"LATHE_SIM_TENSOR_SUM", "fast", "exact, sequential, coarse"},
      {"LATHE_SIM_ERROR_EXITCODE", "256", "0 to 255"},
      {"LATHE_SIM_DEVICES", "0", "1 to 64"},
      {"LATHE_SIM_MULTIPROCESSORS", "1025", "0 to 1024"},
      {"LATHE_SIM_DRIVER_VERSION", "11080", "12000 to 13010"},
      {"LATHE_SIM_SEED", "-1", "0 to"},
      {"LATHE_SIM_QUIET", "yes", "0 to 1"},
      {"LATHE_SIM_ISA", "zz", "base"},
      {"LATHE_SIM_SEED", " 1", "0 to"},
      {"LATHE_SIM_SEED", "99999999999999999999", "0 to"},
      {"LATHE_SIM_LINK", "inf", "GB/s"},
      {"LATHE_SIM_LINK", "20,inf", "GB/s"},
  };
  for (const auto& each : cases) {
    CAPTURE(each.name);
    const Child child = in_child({{each.name, each.value}}, start);
    CHECK(child.status == CUDA_ERROR_NO_DEVICE);
    CHECK(has(child.error, "lathe sim: " + std::string(each.name) + " is \"" + each.value + "\""));
    CHECK(has(child.error, each.says));
  }
  CHECK(in_child({{"LATHE_SIM_GPU", "a100"}, {"LATHE_SIM_ARCH", "sm_90"}}, start).status ==
        CUDA_ERROR_NO_DEVICE);
}

TEST_CASE("an older driver takes no newer PTX") {
  const struct {
    int driver;
    const char* ptx;
    int status;
  } cases[] = {{12040, "8.4", 0}, {12040, "8.5", 2}, {12040, "9.0", 2},
               {12000, "8.0", 0}, {12000, "8.1", 2}, {12060, "8.5", 0},
               {12060, "8.6", 2}, {13000, "9.0", 0}, {13000, "9.1", 2}};
  for (const auto& each : cases) {
    CAPTURE(each.driver);
    CAPTURE(std::string(each.ptx));
    const Environment old = {{"LATHE_SIM_DRIVER_VERSION", std::to_string(each.driver)}};
    CHECK(in_child(old, [&] { return load_ptx(each.ptx, each.driver); }).status == each.status);
  }
}

TEST_CASE("values that are allowed") {
  for (const char* check : {"all", "none", "memcheck", "initcheck,asynccheck",
                            "memcheck,initcheck,racecheck,synccheck,asynccheck", "aligncheck"}) {
    CHECK(in_child({{"LATHE_SIM_CHECK", check}}, start).status == 0);
  }
  const Child child =
      in_child({{"LATHE_SIM_ASYNC", "random"}, {"LATHE_SIM_TENSOR_SUM", "coarse"}}, start);
  CHECK(child.status == 0);
  CHECK(child.error.empty());
}

TEST_CASE("devices by name") {
  const struct {
    Environment environment;
    const char* name;
    int multiprocessors, shared;
  } cases[] = {
      {{}, "lathe simulator sm_90a (NVIDIA H100 80GB HBM3)", 132, 232448},
      {{{"LATHE_SIM_GPU", "h200"}}, "lathe simulator sm_90a (NVIDIA H200)", 132, 232448},
      {{{"LATHE_SIM_GPU", "a100"}}, "lathe simulator sm_80 (NVIDIA A100-SXM4-80GB)", 108, 166912},
      {{{"LATHE_SIM_MULTIPROCESSORS", "3"}},
       "lathe simulator sm_90a (NVIDIA H100 80GB HBM3)",
       3,
       232448},
      {{{"LATHE_SIM_ARCH", "sm_89"}}, "lathe simulator sm_89 (NVIDIA L40S)", 142, 101376},
      {{{"LATHE_SIM_ARCH", "sm_90"}}, "lathe simulator sm_90 (NVIDIA H100 80GB HBM3)", 132, 232448},
      {{{"LATHE_SIM_ARCH", "sm_90"}, {"LATHE_SIM_GPU", "h200"}},
       "lathe simulator sm_90 (NVIDIA H200)",
       132,
       232448},
  };
  for (const auto& each : cases) {
    CAPTURE(each.name);
    const Child child = in_child(each.environment, [&each] {
      char name[128] = {};
      int count = 0, shared = 0;
      if (start() != 0) return 1;
      cuda().device_get_name(name, sizeof name, 0);
      cuda().device_get_attribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0);
      cuda().device_get_attribute(&shared, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
                                  0);
      if (name != std::string(each.name)) return 2;
      return count == each.multiprocessors && shared == each.shared ? 0 : 3;
    });
    CHECK(child.status == 0);
  }
}
