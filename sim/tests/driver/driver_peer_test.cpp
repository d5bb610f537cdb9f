// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover kernels of one device on the memory of another: by peer access, by a pool's,
// and by neither.
#include "sim/tests/driver/driver_client.h"
#include "sim/tests/driver/driver_kernels.h"

using namespace sim::tests;

namespace {

const int kDevicesSet = setenv("LATHE_SIM_DEVICES", "2", 1);
const int kQuietSet = setenv("LATHE_SIM_QUIET", "1", 1);

// c = a + b on the current device; `a` may be elsewhere.
CUresult add_from(CUdeviceptr a, float* first) {
  CUmodule module = nullptr;
  CUfunction add = nullptr;
  REQUIRE(cuda().module_load_data(&module, kernels().c_str()) == CUDA_SUCCESS);
  REQUIRE(cuda().module_get_function(&add, module, "add") == CUDA_SUCCESS);
  CUdeviceptr b = upload(std::vector<float>(32, 1.0f)), c = allocate(128);
  int count = 32;
  void* params[] = {&a, &b, &c, &count};
  REQUIRE(cuda().launch_kernel(add, 1, 1, 1, 32, 1, 1, 0, nullptr, params, nullptr) ==
          CUDA_SUCCESS);
  const CUresult result = cuda().ctx_synchronize();
  if (result != CUDA_SUCCESS) return result;
  *first = download<float>(c, 1)[0];
  cuda().mem_free(b);
  cuda().mem_free(c);
  return cuda().module_unload(module);
}

}  // namespace

TEST_CASE("peer access lets kernels in, and no longer once it ends") {
  const Primary second(1);
  const CUdeviceptr remote = upload(std::vector<float>(32, 41.0f));
  const Primary first(0);
  int can = 0;
  CHECK(cuda().device_can_access_peer(&can, 0, 1) == CUDA_SUCCESS);
  CHECK(can == 1);
  CHECK(cuda().device_can_access_peer(&can, 0, 0) == CUDA_SUCCESS);
  CHECK(can == 0);
  CHECK(cuda().ctx_disable_peer_access(second.context()) == CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  CHECK(cuda().ctx_enable_peer_access(second.context(), 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuda().ctx_enable_peer_access(first.context(), 0) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(cuda().ctx_enable_peer_access(second.context(), 0) == CUDA_SUCCESS);
  CHECK(cuda().ctx_enable_peer_access(second.context(), 0) ==
        CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  float value = 0;
  CHECK(add_from(remote, &value) == CUDA_SUCCESS);
  CHECK(value == 42.0f);
  CHECK(cuda().ctx_disable_peer_access(second.context()) == CUDA_SUCCESS);
  CHECK(add_from(remote, &value) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(cuda().device_primary_ctx_reset(0) == CUDA_SUCCESS);
  CHECK(cuda().ctx_enable_peer_access(second.context(), 0) == CUDA_SUCCESS);
  CHECK(add_from(remote, &value) == CUDA_SUCCESS);
  CHECK(cuda().ctx_push_current(second.context()) == CUDA_SUCCESS);
  CHECK(cuda().mem_free(remote) == CUDA_SUCCESS);
  CUcontext popped = nullptr;
  CHECK(cuda().ctx_pop_current(&popped) == CUDA_SUCCESS);
  CHECK(add_from(remote, &value) == CUDA_ERROR_ILLEGAL_ADDRESS);  // freed, and seen to be
  CHECK(cuda().device_primary_ctx_reset(0) == CUDA_SUCCESS);
}

TEST_CASE("a pool gives its memory to another device") {
  const Primary second(1);
  CUmemPoolProps props = {};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
  CUmemoryPool pool = nullptr;
  REQUIRE(cuda().mem_pool_create(&pool, &props) == CUDA_SUCCESS);
  CUdeviceptr before = 0, after = 0;
  REQUIRE(cuda().mem_alloc_from_pool_async(&before, 128, pool, nullptr) == CUDA_SUCCESS);
  const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CHECK(cuda().mem_pool_set_access(pool, &access, 1) == CUDA_SUCCESS);
  REQUIRE(cuda().mem_alloc_from_pool_async(&after, 128, pool, nullptr) == CUDA_SUCCESS);
  const std::vector<float> ones(32, 3.0f);
  for (const CUdeviceptr each : {before, after}) {
    REQUIRE(cuda().memcpy_htod(each, ones.data(), 128) == CUDA_SUCCESS);
    const Primary first(0);
    float value = 0;
    CHECK(add_from(each, &value) == CUDA_SUCCESS);
    CHECK(value == 4.0f);
  }
  const CUmemAccessDesc none = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_NONE};
  CHECK(cuda().mem_pool_set_access(pool, &none, 1) == CUDA_SUCCESS);
  {
    const Primary first(0);
    float value = 0;
    CHECK(add_from(after, &value) == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(cuda().device_primary_ctx_reset(0) == CUDA_SUCCESS);
  }
  CHECK(cuda().mem_free_async(before, nullptr) == CUDA_SUCCESS);
  CHECK(cuda().mem_free_async(after, nullptr) == CUDA_SUCCESS);
  CHECK(cuda().stream_synchronize(nullptr) == CUDA_SUCCESS);
  CHECK(cuda().mem_pool_destroy(pool) == CUDA_SUCCESS);
}
