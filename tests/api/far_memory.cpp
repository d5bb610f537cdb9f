// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/api/far_memory.h"

#include <cuda.h>
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <sys/mman.h>

namespace apitest {
namespace {

template <typename Function>
Function find(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

template <typename Work>
void with_context(void* library, Work work) {
  CUcontext context = nullptr;
  find<decltype(&cuDevicePrimaryCtxRetain)>(library, "cuDevicePrimaryCtxRetain")(&context, 0);
  find<decltype(&cuCtxPushCurrent)>(library, "cuCtxPushCurrent_v2")(context);
  work();
  find<decltype(&cuCtxPopCurrent)>(library, "cuCtxPopCurrent_v2")(&context);
  find<decltype(&cuDevicePrimaryCtxRelease)>(library, "cuDevicePrimaryCtxRelease_v2")(0);
}

}  // namespace

FarMemory::FarMemory(lathe_context* context, size_t bytes) : bytes_(bytes) {
  if (!on_simulator()) {
    memory_ = std::make_unique<Memory>(context, bytes);
    data_ = memory_->data();
    return;
  }
  data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
               -1, 0);
  REQUIRE(data_ != MAP_FAILED);
  lathe_context_info info{};
  info.size = sizeof info;
  API(lathe_context_get_info(context, &info));
  library_ = dlopen(info.driver_path, RTLD_NOW | RTLD_NOLOAD);
  REQUIRE(library_ != nullptr);
  with_context(library_, [&] {
    const auto add = find<decltype(&cuMemHostRegister)>(library_, "cuMemHostRegister_v2");
    REQUIRE(add(data_, bytes, CU_MEMHOSTREGISTER_DEVICEMAP) == CUDA_SUCCESS);
  });
}

FarMemory::~FarMemory() {
  if (library_ == nullptr) return;
  with_context(library_, [&] {
    find<decltype(&cuMemHostUnregister)>(library_, "cuMemHostUnregister")(data_);
  });
  munmap(data_, bytes_);
}

}  // namespace apitest
