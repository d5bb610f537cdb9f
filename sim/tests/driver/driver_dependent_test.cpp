// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The attribute of programmatic dependent launch reaches the race check: only a launch that has it,
// right behind the kernel it may overlap, is looked at.
#include "sim/tests/child.h"
#include "sim/tests/driver/driver_client.h"

using namespace sim::tests;

namespace {

// Each kernel has the address of its thread's word in %a.
std::string kernel_of(const std::string& name, const std::string& body) {
  return ".visible .entry " + name + R"((.param .u64 out)
{
  .reg .b32 %t;
  .reg .b64 %a, %b;
  mov.u32 %t, %tid.x;
  ld.param.u64 %a, [out];
  mul.wide.u32 %b, %t, 4;
  add.u64 %a, %a, %b;
)" + body +
         "  ret;\n}\n";
}

std::string text_of(const std::string& wait) {
  return ".version 8.0\n.target sm_90\n.address_size 64\n" +
         kernel_of("first", "  st.global.u32 [%a], %t;\n  griddepcontrol.launch_dependents;\n") +
         kernel_of("second", wait + R"(
  ld.global.u32 %t, [%a];
  add.u32 %t, %t, 1;
  st.global.u32 [%a], %t;
)");
}

// Both kernels in one stream. `between` puts other work between them.
int run_both(const std::string& wait, bool attribute, bool between) {
  if (cuda().init(0) != CUDA_SUCCESS) return 100;
  CUcontext context = nullptr;
  cuda().device_primary_ctx_retain(&context, 0);
  cuda().ctx_set_current(context);
  CUmodule module = nullptr;
  CUfunction first = nullptr, second = nullptr;
  if (cuda().module_load_data(&module, text_of(wait).c_str()) != CUDA_SUCCESS) return 101;
  cuda().module_get_function(&first, module, "first");
  cuda().module_get_function(&second, module, "second");
  CUdeviceptr out = 0, other = 0;
  cuda().mem_alloc(&out, 128);
  cuda().mem_alloc(&other, 128);
  void* params[] = {&out};
  CUstream stream = nullptr;
  cuda().stream_create(&stream, CU_STREAM_NON_BLOCKING);
  cuda().launch_kernel(first, 1, 1, 1, 32, 1, 1, 0, stream, params, nullptr);
  if (between) cuda().memset_d8_async(other, 0, 128, stream);
  CUlaunchAttribute early{};
  early.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  early.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 32;
  config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  config.attrs = &early;
  config.numAttrs = attribute ? 1 : 0;
  cuda().launch_kernel_ex(&config, second, params, nullptr);
  if (cuda().ctx_synchronize() != CUDA_SUCCESS) return 102;
  uint32_t values[32] = {};
  cuda().memcpy_dtoh(values, out, sizeof values);
  for (uint32_t k = 0; k < 32; ++k) {
    if (values[k] != k + 1) return 103;
  }
  return 0;
}

}  // namespace

TEST_CASE("a dependent launch that reads before griddepcontrol.wait is a race under every seed") {
  const std::string wait = "griddepcontrol.wait;";
  for (int seed = 0; seed < 5; ++seed) {
    const std::map<std::string, std::string> environment = {
        {"LATHE_SIM_CHECK", "all"}, {"LATHE_SIM_SEED", std::to_string(seed)}};
    const struct {
      std::string wait;
      bool attribute, between, race;
    } cases[] = {{"", true, false, true},
                 {wait, true, false, false},
                 {"", false, false, false},
                 {wait, false, false, false},
                 {"", true, true, false}};
    for (const auto& each : cases) {
      const Child child =
          in_child(environment, [&] { return run_both(each.wait, each.attribute, each.between); });
      CAPTURE(seed);
      INFO(child.error);
      CHECK(child.status == 0);
      const bool told =
          child.error.find("griddepcontrol.wait has to come first") != std::string::npos;
      CHECK(told == each.race);
    }
  }
}
