// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover allocation, copies, fills and what is known about addresses.
#include <cstring>
#include <thread>

#include "sim/tests/driver/driver_client.h"

using namespace sim::tests;

namespace {

constexpr size_t kLimit = 64 << 20;
const int kLimitSet = setenv("LATHE_SIM_MEMORY_BYTES", std::to_string(kLimit).c_str(), 1);
const int kDevicesSet = setenv("LATHE_SIM_DEVICES", "2", 1);

std::vector<int> iota(size_t count) {
  std::vector<int> values(count);
  for (size_t at = 0; at < count; ++at) values[at] = static_cast<int>(at);
  return values;
}

}  // namespace

TEST_CASE("memory is counted and runs out") {
  const Primary primary;
  size_t free = 0, total = 0;
  CHECK(cuda().mem_get_info(&free, &total) == CUDA_SUCCESS);
  CHECK(total == kLimit);
  CHECK(free == kLimit);
  const CUdeviceptr memory = allocate(kLimit / 2);
  CHECK(memory % 256 == 0);
  CHECK(cuda().mem_get_info(&free, &total) == CUDA_SUCCESS);
  CHECK(free == kLimit / 2);
  CUdeviceptr more = 0;
  CHECK(cuda().mem_alloc(&more, kLimit / 2 + 1) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(cuda().mem_alloc(&more, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuda().mem_free(memory) == CUDA_SUCCESS);
  CHECK(cuda().mem_free(memory) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuda().mem_free(0) == CUDA_SUCCESS);
  const CUdeviceptr again = allocate(kLimit);
  CHECK(cuda().mem_free(again + 4) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuda().mem_free(again) == CUDA_SUCCESS);
}

TEST_CASE("copies that leave an allocation, or name the wrong place, are refused") {
  const Primary primary;
  const CUdeviceptr memory = allocate(100);
  std::vector<char> host(200);
  CHECK(cuda().memcpy_htod(memory, host.data(), 101) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuda().memcpy_htod(memory + 50, host.data(), 51) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuda().memcpy_htod(memory + 50, host.data(), 50) == CUDA_SUCCESS);
  CHECK(cuda().memcpy_dtoh(host.data(), memory, 101) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuda().memcpy_htod(reinterpret_cast<CUdeviceptr>(host.data()), host.data(), 10) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(cuda().memcpy_htod(memory, reinterpret_cast<void*>(memory), 10) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(cuda().memcpy_htod(memory, nullptr, 10) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuda().memset_d8(memory, 1, 101) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuda().memset_d32(memory + 2, 1, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuda().mem_free(memory) == CUDA_SUCCESS);
  CHECK(cuda().memcpy_dtoh(host.data(), memory, 1) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a pageable source is read at the call, a pinned one when the copy runs") {
  const Primary primary;
  CUstream stream = nullptr;
  REQUIRE(cuda().stream_create(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  void* page = nullptr;
  REQUIRE(cuda().mem_host_alloc(&page, 4096, 0) == CUDA_SUCCESS);
  auto* flag = static_cast<uint32_t*>(page);
  auto* pinned = static_cast<int*>(page) + 16;
  *flag = 0;
  pinned[0] = 1;
  std::vector<int> pageable = {1};
  const CUdeviceptr target = allocate(8);
  CHECK(cuda().stream_wait_value32(stream, reinterpret_cast<CUdeviceptr>(flag), 1,
                                   CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS);
  CHECK(cuda().memcpy_htod_async(target, pageable.data(), 4, stream) == CUDA_SUCCESS);
  CHECK(cuda().memcpy_htod_async(target + 4, pinned, 4, stream) == CUDA_SUCCESS);
  pageable[0] = 2;
  pinned[0] = 2;
  __atomic_store_n(flag, 1u, __ATOMIC_RELEASE);
  CHECK(cuda().stream_synchronize(stream) == CUDA_SUCCESS);
  CHECK(download<int>(target, 2) == std::vector<int>{1, 2});
  CHECK(cuda().mem_free(target) == CUDA_SUCCESS);
  CHECK(cuda().mem_free_host(page) == CUDA_SUCCESS);
  CHECK(cuda().stream_destroy(stream) == CUDA_SUCCESS);
}

TEST_CASE("a copy to pageable memory is over on return") {
  const Primary primary;
  const CUdeviceptr source = upload(iota(1000));
  std::vector<int> host(1000, -1);
  CHECK(cuda().memcpy_dtoh_async(host.data(), source, 4000, nullptr) == CUDA_SUCCESS);
  CHECK(host == iota(1000));
  CHECK(cuda().mem_free(source) == CUDA_SUCCESS);
}

TEST_CASE("copies between devices") {
  const Primary primary(0);
  const CUdeviceptr here = upload(iota(64));
  CUcontext other = nullptr;
  REQUIRE(cuda().device_primary_ctx_retain(&other, 1) == CUDA_SUCCESS);
  REQUIRE(cuda().ctx_push_current(other) == CUDA_SUCCESS);
  const CUdeviceptr there = allocate(256);
  CHECK(cuda().memcpy_dtod(there, here, 256) == CUDA_SUCCESS);
  CHECK(download<int>(there, 64) == iota(64));
  CHECK(cuda().mem_free(there) == CUDA_SUCCESS);
  CHECK(cuda().ctx_pop_current(&other) == CUDA_SUCCESS);
  CHECK(cuda().device_primary_ctx_release(1) == CUDA_SUCCESS);
  CHECK(cuda().mem_free(here) == CUDA_SUCCESS);
}

TEST_CASE("a rectangle") {
  const Primary primary;
  const std::vector<int> host = iota(12);  // 3 rows of 4
  const CUdeviceptr target = allocate(3 * 512);
  CHECK(cuda().memset_d8(target, 0, 3 * 512) == CUDA_SUCCESS);
  CUDA_MEMCPY2D what = {};
  what.srcMemoryType = CU_MEMORYTYPE_HOST;
  what.srcHost = host.data();
  what.srcPitch = 16;
  what.srcXInBytes = 4;
  what.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  what.dstDevice = target;
  what.dstPitch = 512;
  what.WidthInBytes = 8;
  what.Height = 3;
  CHECK(cuda().memcpy_2d_async(&what, nullptr) == CUDA_SUCCESS);
  for (size_t row = 0; row < 3; ++row) {
    const int first = static_cast<int>(row * 4 + 1);
    CHECK(download<int>(target + row * 512, 3) == std::vector<int>{first, first + 1, 0});
  }
  what.WidthInBytes = 16;  // the last row would leave the source's pitch
  what.dstPitch = 8;
  CHECK(cuda().memcpy_2d_async(&what, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuda().mem_free(target) == CUDA_SUCCESS);
}

TEST_CASE("what is known about an address") {
  const Primary primary;
  const CUdeviceptr memory = allocate(1000);
  unsigned type = 0;
  size_t bytes = 0;
  CUdeviceptr base = 0;
  CUcontext context = nullptr;
  int ordinal = -1;
  const auto get = [&](void* out, CUpointer_attribute which, CUdeviceptr address) {
    return cuda().pointer_get_attribute(out, which, address);
  };
  CHECK(get(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory + 999) == CUDA_SUCCESS);
  CHECK(type == CU_MEMORYTYPE_DEVICE);
  CHECK(get(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, memory + 999) == CUDA_SUCCESS);
  CHECK(base == memory);
  CHECK(get(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, memory) == CUDA_SUCCESS);
  CHECK(bytes == 1000);
  CHECK(get(&context, CU_POINTER_ATTRIBUTE_CONTEXT, memory) == CUDA_SUCCESS);
  CHECK(context == primary.context());
  CHECK(get(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory) == CUDA_SUCCESS);
  CHECK(ordinal == 0);
  CHECK(get(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory + 1000) == CUDA_ERROR_INVALID_VALUE);
  std::vector<char> host(64);
  const auto host_address = reinterpret_cast<CUdeviceptr>(host.data());
  CHECK(get(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, host_address) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuda().mem_host_register(host.data(), 64, 0) == CUDA_SUCCESS);
  CHECK(get(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, host_address) == CUDA_SUCCESS);
  CHECK(type == CU_MEMORYTYPE_HOST);
  CHECK(cuda().mem_host_register(host.data(), 64, 0) == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  CHECK(cuda().mem_host_unregister(host.data()) == CUDA_SUCCESS);
  CHECK(cuda().mem_host_unregister(host.data()) == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  for (const uintptr_t nowhere : {uintptr_t(0x1000), ~uintptr_t(0) - 8191}) {  // nothing is mapped
    CHECK(cuda().mem_host_register(reinterpret_cast<void*>(nowhere), 4096, 0) ==
          CUDA_ERROR_INVALID_VALUE);
  }
  CHECK(cuda().mem_free(memory) == CUDA_SUCCESS);
}

TEST_CASE("stream-ordered memory is gone from its point of the stream on") {
  const Primary primary;
  CUstream stream = nullptr;
  REQUIRE(cuda().stream_create(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  CUdeviceptr memory = 0;
  CHECK(cuda().mem_alloc_async(&memory, 256, stream) == CUDA_SUCCESS);
  CHECK(cuda().memset_d8_async(memory, 1, 256, stream) == CUDA_SUCCESS);
  CHECK(cuda().mem_free_async(memory, stream) == CUDA_SUCCESS);
  CHECK(cuda().memset_d8_async(memory, 1, 256, stream) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuda().stream_synchronize(stream) == CUDA_SUCCESS);
  size_t free = 0, total = 0;
  CHECK(cuda().mem_get_info(&free, &total) == CUDA_SUCCESS);
  CHECK(free == total);
  CHECK(cuda().stream_destroy(stream) == CUDA_SUCCESS);
}

TEST_CASE("frees that a stalled device holds back are over when the context is synchronized") {
  const Primary primary;
  auto free_bytes = [] {
    size_t free = 0, total = 0;
    CHECK(cuda().mem_get_info(&free, &total) == CUDA_SUCCESS);
    return free;
  };
  void* flag = nullptr;
  REQUIRE(cuda().mem_host_alloc(&flag, 4, 0) == CUDA_SUCCESS);
  std::memset(flag, 0, 4);
  const size_t before = free_bytes();
  std::vector<CUdeviceptr> blocks(200);  // many, so that giving them back takes a while
  for (CUdeviceptr& block : blocks) block = allocate(4096);
  CUstream stream = nullptr;
  REQUIRE(cuda().stream_create(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  CHECK(cuda().stream_wait_value32(stream, reinterpret_cast<CUdeviceptr>(flag), 1,
                                   CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS);
  for (const CUdeviceptr block : blocks) CHECK(cuda().mem_free(block) == CUDA_SUCCESS);
  CHECK(free_bytes() == before - 4096 * blocks.size());
  __atomic_store_n(static_cast<unsigned*>(flag), 1u, __ATOMIC_RELEASE);
  CHECK(cuda().ctx_synchronize() == CUDA_SUCCESS);
  CHECK(free_bytes() == before);
  CHECK(cuda().stream_destroy(stream) == CUDA_SUCCESS);
  CHECK(cuda().mem_free_host(flag) == CUDA_SUCCESS);
}

TEST_CASE("what waits to be given up when a context ends is given up") {
  alignas(4096) static char page[4096];
  for (int round = 0; round < 2; ++round) {
    const Primary primary;
    void* flag = nullptr;
    REQUIRE(cuda().mem_host_alloc(&flag, 4, 0) == CUDA_SUCCESS);
    std::memset(flag, 0, 4);
    CHECK(cuda().mem_host_register(page, sizeof page, 0) == CUDA_SUCCESS);
    CUstream stream = nullptr;
    REQUIRE(cuda().stream_create(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    // For a value that nobody writes: the call below returns as nothing goes on.
    CHECK(cuda().stream_wait_value32(stream, reinterpret_cast<CUdeviceptr>(flag), 1,
                                     CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS);
    CHECK(cuda().mem_host_unregister(page) == CUDA_SUCCESS);
    CHECK(cuda().device_primary_ctx_reset(0) == CUDA_SUCCESS);
  }
}

TEST_CASE("threads allocate, copy and free at once") {
  const Primary primary;
  std::vector<std::thread> threads;
  for (int index = 0; index < 4; ++index) {
    threads.emplace_back([index] {
      const Primary mine;
      CUstream stream = nullptr;
      CHECK(cuda().stream_create(&stream, CU_STREAM_DEFAULT) == CUDA_SUCCESS);
      for (int step = 0; step < 50; ++step) {
        CUdeviceptr memory = 0;
        CHECK(cuda().mem_alloc(&memory, 4096) == CUDA_SUCCESS);
        const auto value = static_cast<unsigned>(index * 1000 + step);
        CHECK(cuda().memset_d32_async(memory, value, 1024, stream) == CUDA_SUCCESS);
        std::vector<unsigned> got(1024);
        CHECK(cuda().memcpy_dtoh_async(got.data(), memory, 4096, stream) == CUDA_SUCCESS);
        CHECK(got == std::vector<unsigned>(1024, value));
        CHECK(cuda().mem_free(memory) == CUDA_SUCCESS);
      }
      CHECK(cuda().stream_destroy(stream) == CUDA_SUCCESS);
    });
  }
  for (std::thread& thread : threads) thread.join();
}
