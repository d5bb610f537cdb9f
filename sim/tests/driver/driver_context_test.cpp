// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover initialisation, devices, contexts and entry points.
#include <cstring>
#include <thread>

#include "sim/tests/driver/driver_client.h"

using namespace sim::tests;

namespace {

const int kDevicesSet = setenv("LATHE_SIM_DEVICES", "2", 1);
const int kArchSet = setenv("LATHE_SIM_ARCH", "sm_90a", 1);

void* look_up(const char* name, int version, cuuint64_t flags, CUresult* result,
              CUdriverProcAddressQueryResult* status) {
  void* entry = nullptr;
  *result = cuda().get_proc_address(name, &entry, version, flags, status);
  return entry;
}

int attribute(CUdevice_attribute which) {
  int value = -1;
  CHECK(cuda().device_get_attribute(&value, which, 0) == CUDA_SUCCESS);
  return value;
}

}  // namespace

// Must come first in this program: nothing is initialised yet.
TEST_CASE("before cuInit everything but a few calls answers 3") {
  int count = 0;
  CHECK(cuda().device_get_count(&count) == CUDA_ERROR_NOT_INITIALIZED);
  CUcontext context = nullptr;
  CHECK(cuda().ctx_get_current(&context) == CUDA_ERROR_NOT_INITIALIZED);
  int version = 0;
  CHECK(cuda().driver_get_version(&version) == CUDA_SUCCESS);
  CHECK(version == 13000);
  CHECK(cuda().init(1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuda().init(0) == CUDA_SUCCESS);
  CHECK(cuda().init(0) == CUDA_SUCCESS);
  CHECK(cuda().device_get_count(&count) == CUDA_SUCCESS);
  CHECK(count == 2);
}

TEST_CASE("devices say what the profile says") {
  char name[64] = {};
  CHECK(cuda().device_get_name(name, sizeof name, 0) == CUDA_SUCCESS);
  CHECK(std::string(name) == "lathe simulator sm_90a (NVIDIA H100 80GB HBM3)");
  CHECK(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) == 9);
  CHECK(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) == 132);
  CHECK(attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) == 232448);
  CHECK(attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE) == 32);
  int value = 0;
  CHECK(cuda().device_get_attribute(&value, static_cast<CUdevice_attribute>(9999), 0) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(cuda().device_get_attribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 2) ==
        CUDA_ERROR_INVALID_DEVICE);
  CUdevice device = 0;
  CHECK(cuda().device_get(&device, -1) == CUDA_ERROR_INVALID_DEVICE);
}

TEST_CASE("error names") {
  const char* text = nullptr;
  CHECK(cuda().get_error_name(CUDA_ERROR_ILLEGAL_ADDRESS, &text) == CUDA_SUCCESS);
  CHECK(std::string(text) == "CUDA_ERROR_ILLEGAL_ADDRESS");
  CHECK(cuda().get_error_string(CUDA_ERROR_ILLEGAL_ADDRESS, &text) == CUDA_SUCCESS);
  CHECK(std::string(text) == "illegal address");
  CHECK(cuda().get_error_name(static_cast<CUresult>(12345), &text) == CUDA_ERROR_INVALID_VALUE);
  CHECK(text == nullptr);
}

TEST_CASE("entry points by name and version") {
  CUresult result = CUDA_SUCCESS;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
  const auto exported = [](const char* name) { return dlsym(cuda().library, name); };
  CHECK(look_up("cuMemAlloc", 13000, 0, &result, &status) == exported("cuMemAlloc_v2"));
  CHECK(result == CUDA_SUCCESS);
  CHECK(look_up("cuLaunchKernel", 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &result,
                &status) == exported("cuLaunchKernel_ptsz"));
  CHECK(look_up("cuMemcpyHtoD", 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &result,
                &status) == exported("cuMemcpyHtoD_v2_ptds"));
  CHECK(look_up("cuEventElapsedTime", 12000, 0, &result, &status) ==
        exported("cuEventElapsedTime"));
  CHECK(look_up("cuEventElapsedTime", 12080, 0, &result, &status) ==
        exported("cuEventElapsedTime_v2"));
  CHECK(look_up("cuNoSuchCall", 13000, 0, &result, &status) == nullptr);
  CHECK(result == CUDA_ERROR_NOT_FOUND);
  CHECK(status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  CHECK(look_up("cuLaunchKernelEx", 11000, 0, &result, &status) == nullptr);
  CHECK(result == CUDA_ERROR_NOT_FOUND);
  CHECK(status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  CHECK(look_up("cuMemAlloc", 13000, 99, &result, &status) == nullptr);
  CHECK(result == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a thread without a context") {
  std::thread([] {
    CUdeviceptr memory = 0;
    CHECK(cuda().mem_alloc(&memory, 16) == CUDA_ERROR_INVALID_CONTEXT);
    CHECK(cuda().ctx_synchronize() == CUDA_ERROR_INVALID_CONTEXT);
    CUcontext context = nullptr;
    CHECK(cuda().ctx_get_current(&context) == CUDA_SUCCESS);
    CHECK(context == nullptr);
    CHECK(cuda().ctx_pop_current(&context) == CUDA_ERROR_INVALID_CONTEXT);
    CHECK(cuda().ctx_set_current(reinterpret_cast<CUcontext>(0x77)) == CUDA_ERROR_INVALID_CONTEXT);
  }).join();
}

TEST_CASE("the stack of contexts") {
  CUcontext made = nullptr, top = nullptr;
  REQUIRE(cuda().ctx_create(&made, nullptr, 0, 1) == CUDA_SUCCESS);
  CUdevice device = -1;
  CHECK(cuda().ctx_get_device(&device) == CUDA_SUCCESS);
  CHECK(device == 1);
  {
    const Primary primary(0);
    CHECK(cuda().ctx_get_current(&top) == CUDA_SUCCESS);
    CHECK(top == primary.context());
    CHECK(cuda().ctx_destroy(primary.context()) == CUDA_ERROR_INVALID_CONTEXT);
  }
  CHECK(cuda().ctx_get_current(&top) == CUDA_SUCCESS);
  CHECK(top == made);
  CHECK(cuda().ctx_destroy(made) == CUDA_SUCCESS);
  CHECK(cuda().ctx_destroy(made) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(cuda().ctx_get_current(&top) == CUDA_SUCCESS);
  CHECK(top == nullptr);
}

TEST_CASE("primary contexts are counted") {
  CUcontext first = nullptr, second = nullptr;
  unsigned flags = 0;
  int active = -1;
  CHECK(cuda().device_primary_ctx_retain(&first, 1) == CUDA_SUCCESS);
  CHECK(cuda().device_primary_ctx_retain(&second, 1) == CUDA_SUCCESS);
  CHECK(first == second);
  CHECK(cuda().device_primary_ctx_release(1) == CUDA_SUCCESS);
  CHECK(cuda().device_primary_ctx_get_state(1, &flags, &active) == CUDA_SUCCESS);
  CHECK(active == 1);
  CHECK(cuda().device_primary_ctx_release(1) == CUDA_SUCCESS);
  CHECK(cuda().device_primary_ctx_get_state(1, &flags, &active) == CUDA_SUCCESS);
  CHECK(active == 0);
  CHECK(cuda().device_primary_ctx_release(1) == CUDA_ERROR_INVALID_CONTEXT);
}

TEST_CASE("a destroyed context that is still current answers so") {
  const Primary outer(0);
  CUcontext context = nullptr;
  REQUIRE(cuda().device_primary_ctx_retain(&context, 1) == CUDA_SUCCESS);
  REQUIRE(cuda().ctx_push_current(context) == CUDA_SUCCESS);
  const CUdeviceptr memory = allocate(64);
  CHECK(cuda().device_primary_ctx_release(1) == CUDA_SUCCESS);
  CHECK(cuda().mem_free(memory) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
  CHECK(cuda().ctx_pop_current(&context) == CUDA_SUCCESS);
  CHECK(cuda().mem_free(memory) == CUDA_ERROR_INVALID_VALUE);  // went with its context
}
