// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Kernels of two streams: one that waits for what the other writes comes to its end, whichever
// starts first; and ends with its context if the other faults.
#include "sim/tests/child.h"
#include "sim/tests/driver/driver_client.h"

using namespace sim::tests;

namespace {

// `wait` spins until the flag is set and then adds 1 to the value beside it.
constexpr char kText[] = R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry wait(.param .u64 flag)
{
  .reg .pred %p;
  .reg .b32 %v;
  .reg .b64 %a;
  ld.param.u64 %a, [flag];
AGAIN:
  ld.acquire.gpu.global.u32 %v, [%a];
  setp.eq.u32 %p, %v, 0;
  @%p bra AGAIN;
  ld.global.u32 %v, [%a+4];
  add.u32 %v, %v, 1;
  st.global.u32 [%a+8], %v;
  ret;
}
.visible .entry set(.param .u64 flag)
{
  .reg .b32 %v;
  .reg .b64 %a;
  ld.param.u64 %a, [flag];
  mov.u32 %v, 41;
  st.global.u32 [%a+4], %v;
  mov.u32 %v, 1;
  st.release.gpu.global.u32 [%a], %v;
  ret;
}
)";

// Returns 0 if all is well, or with `fault` if both streams end with it.
int run_both(bool fault) {
  if (cuda().init(0) != CUDA_SUCCESS) return 100;
  CUcontext context = nullptr;
  cuda().device_primary_ctx_retain(&context, 0);
  cuda().ctx_set_current(context);
  CUmodule module = nullptr;
  CUfunction wait = nullptr, set = nullptr;
  if (cuda().module_load_data(&module, kText) != CUDA_SUCCESS) return 101;
  cuda().module_get_function(&wait, module, "wait");
  cuda().module_get_function(&set, module, "set");
  CUdeviceptr flag = 0, nowhere = 0;
  cuda().mem_alloc(&flag, 12);
  cuda().memset_d8(flag, 0, 12);
  cuda().ctx_synchronize();
  CUstream streams[2] = {};
  for (CUstream& stream : streams) cuda().stream_create(&stream, CU_STREAM_NON_BLOCKING);
  void* params[] = {&flag};
  void* wild[] = {&nowhere};
  cuda().launch_kernel(wait, 1, 1, 1, 1, 1, 1, 0, streams[0], params, nullptr);
  cuda().launch_kernel(set, 1, 1, 1, 1, 1, 1, 0, streams[1], fault ? wild : params, nullptr);
  const CUresult result = cuda().ctx_synchronize();
  if (fault) return result == CUDA_ERROR_ILLEGAL_ADDRESS ? 0 : 102;
  uint32_t value = 0;
  if (cuda().memcpy_dtoh(&value, flag + 8, 4) != CUDA_SUCCESS) return 103;
  return result == CUDA_SUCCESS && value == 42 ? 0 : 104;
}

}  // namespace

TEST_CASE("a kernel that waits for one of another stream ends under every seed") {
  for (int seed = 0; seed < 10; ++seed) {
    // The limit ends a kernel that waits for ever.
    const Environment environment = {{"LATHE_SIM_SEED", std::to_string(seed)},
                                     {"LATHE_SIM_QUIET", "1"},
                                     {"LATHE_SIM_INSTRUCTION_LIMIT", "20000000"}};
    CAPTURE(seed);
    CHECK(in_child(environment, [] { return run_both(false); }).status == 0);
    CHECK(in_child(environment, [] { return run_both(true); }).status == 0);
  }
}
