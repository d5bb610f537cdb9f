// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover virtual memory management: addresses, memory and access apart.
#include "sim/tests/driver/driver_client.h"
#include "sim/tests/driver/driver_kernels.h"

using namespace sim::tests;

namespace {

const int kQuietSet = setenv("LATHE_SIM_QUIET", "1", 1);
const int kLimitSet = setenv("LATHE_SIM_MEMORY_BYTES", "16777216", 1);
constexpr size_t kPiece = 2 << 20;

CUmemAllocationProp props() {
  CUmemAllocationProp out = {};
  out.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  out.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  return out;
}

CUmemGenericAllocationHandle create(size_t bytes) {
  const CUmemAllocationProp given = props();
  CUmemGenericAllocationHandle handle = 0;
  REQUIRE(cuda().mem_create(&handle, bytes, &given, 0) == CUDA_SUCCESS);
  return handle;
}

const CUmemAccessDesc kAll = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

// Doubles the first element through a kernel.
CUresult twice(CUdeviceptr at) {
  CUmodule module = nullptr;
  CUfunction add = nullptr;
  REQUIRE(cuda().module_load_data(&module, kernels().c_str()) == CUDA_SUCCESS);
  REQUIRE(cuda().module_get_function(&add, module, "add") == CUDA_SUCCESS);
  int count = 1;
  void* params[] = {&at, &at, &at, &count};
  REQUIRE(cuda().launch_kernel(add, 1, 1, 1, 32, 1, 1, 0, nullptr, params, nullptr) ==
          CUDA_SUCCESS);
  return cuda().ctx_synchronize();
}

}  // namespace

TEST_CASE("two pieces of memory behind one range of addresses") {
  const Primary primary;
  const CUmemAllocationProp given = props();
  size_t granularity = 0;
  CHECK(cuda().mem_get_allocation_granularity(&granularity, &given,
                                              CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS);
  CHECK(granularity == kPiece);
  CUdeviceptr base = 0;
  REQUIRE(cuda().mem_address_reserve(&base, 4 * kPiece, 0, 0, 0) == CUDA_SUCCESS);
  CHECK(base % kPiece == 0);
  const CUmemGenericAllocationHandle first = create(kPiece), second = create(2 * kPiece);
  CHECK(cuda().mem_map(base, kPiece, 0, first, 0) == CUDA_SUCCESS);
  CHECK(cuda().mem_map(base, kPiece, 0, first, 0) == CUDA_ERROR_INVALID_VALUE);  // taken
  CHECK(cuda().mem_map(base + kPiece, 2 * kPiece, 0, second, 0) == CUDA_SUCCESS);
  CHECK(cuda().mem_map(base + 3 * kPiece, 2 * kPiece, 0, second, 0) ==
        CUDA_ERROR_INVALID_VALUE);  // past the reservation
  const float value = 3.0f;
  CHECK(cuda().memcpy_htod(base, &value, 4) == CUDA_ERROR_INVALID_VALUE);  // no access yet
  unsigned long long flags = 0;
  CHECK(cuda().mem_get_access(&flags, &kAll.location, base) == CUDA_SUCCESS);
  CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
  CHECK(cuda().mem_set_access(base, 3 * kPiece, &kAll, 1) == CUDA_SUCCESS);
  CHECK(cuda().mem_get_access(&flags, &kAll.location, base + kPiece) == CUDA_SUCCESS);
  CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  CHECK(cuda().memcpy_htod(base + kPiece, &value, 4) == CUDA_SUCCESS);
  CHECK(twice(base + kPiece) == CUDA_SUCCESS);
  CHECK(download<float>(base + kPiece, 1)[0] == 6.0f);
  CHECK(cuda().mem_release(second) == CUDA_SUCCESS);  // the mapping keeps it
  CHECK(twice(base + kPiece) == CUDA_SUCCESS);
  CHECK(download<float>(base + kPiece, 1)[0] == 12.0f);
  CHECK(cuda().mem_address_free(base, 4 * kPiece) == CUDA_ERROR_INVALID_VALUE);  // in use
  CHECK(cuda().mem_unmap(base, 2 * kPiece) == CUDA_ERROR_INVALID_VALUE);         // half a piece
  CHECK(cuda().mem_unmap(base, 3 * kPiece) == CUDA_SUCCESS);
  CHECK(cuda().mem_release(first) == CUDA_SUCCESS);
  CHECK(cuda().mem_release(first) == CUDA_ERROR_INVALID_VALUE);
  CHECK(twice(base) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(cuda().device_primary_ctx_reset(0) == CUDA_SUCCESS);
  CHECK(cuda().mem_address_free(base, 4 * kPiece) == CUDA_SUCCESS);
}

TEST_CASE("memory moves from one address to another") {
  const Primary primary;
  CUdeviceptr a = 0, b = 0;
  REQUIRE(cuda().mem_address_reserve(&a, kPiece, 0, 0, 0) == CUDA_SUCCESS);
  REQUIRE(cuda().mem_address_reserve(&b, kPiece, 8 * kPiece, 0, 0) == CUDA_SUCCESS);
  CHECK(b % (8 * kPiece) == 0);
  const CUmemGenericAllocationHandle memory = create(kPiece);
  const uint64_t value = 0x123456789;
  CHECK(cuda().mem_map(a, kPiece, 0, memory, 0) == CUDA_SUCCESS);
  CHECK(cuda().mem_set_access(a, kPiece, &kAll, 1) == CUDA_SUCCESS);
  CHECK(cuda().memcpy_htod(a, &value, 8) == CUDA_SUCCESS);
  CHECK(cuda().mem_unmap(a, kPiece) == CUDA_SUCCESS);
  CHECK(cuda().mem_map(b, kPiece, 0, memory, 0) == CUDA_SUCCESS);
  CHECK(cuda().mem_set_access(b, kPiece, &kAll, 1) == CUDA_SUCCESS);
  CHECK(download<uint64_t>(b, 1)[0] == value);
  CHECK(cuda().mem_unmap(b, kPiece) == CUDA_SUCCESS);
  CHECK(cuda().mem_release(memory) == CUDA_SUCCESS);
  CHECK(cuda().mem_address_free(a, kPiece) == CUDA_SUCCESS);
  CHECK(cuda().mem_address_free(b, kPiece) == CUDA_SUCCESS);
}

TEST_CASE("created memory counts against the device's") {
  const Primary primary;
  size_t free = 0, total = 0;
  CHECK(cuda().mem_get_info(&free, &total) == CUDA_SUCCESS);
  CHECK(free == 8 * kPiece);
  const CUmemGenericAllocationHandle memory = create(6 * kPiece);
  CHECK(cuda().mem_get_info(&free, &total) == CUDA_SUCCESS);
  CHECK(free == 2 * kPiece);
  const CUmemAllocationProp given = props();
  CUmemGenericAllocationHandle more = 0;
  CHECK(cuda().mem_create(&more, 4 * kPiece, &given, 0) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(cuda().mem_create(&more, kPiece / 2, &given, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuda().mem_release(memory) == CUDA_SUCCESS);
  CHECK(cuda().mem_get_info(&free, &total) == CUDA_SUCCESS);
  CHECK(free == 8 * kPiece);
}
