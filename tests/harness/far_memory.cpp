// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/harness/far_memory.h"

#include <cuda.h>
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <sys/mman.h>

#include "tests/numbers.h"

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

FarTensor::FarTensor(lathe_context* context, lathe_dtype dtype, std::vector<int64_t> shape,
                     int64_t first_stride, int64_t second_stride)
    : context_(context),
      dtype_(dtype),
      shape_(std::move(shape)),
      strides_{first_stride, second_stride, shape_.at(3), 1},
      memory_(context,
              static_cast<size_t>(2 * ((shape_[0] - 1) * first_stride +
                                       (shape_[1] - 1) * second_stride + shape_[2] * shape_[3]))) {
  dl_.data = memory_.data();
  dl_.device = {kDLCUDA, 0};
  dl_.ndim = 4;
  dl_.dtype = {static_cast<uint8_t>(dtype == LATHE_BF16 ? kDLBfloat : kDLFloat), 16, 1};
  dl_.shape = shape_.data(), dl_.strides = strides_.data();
}

template <typename Work>
void FarTensor::for_rows(Work work) const {
  for (int64_t i = 0; i < shape_[0]; ++i) {
    for (int64_t j = 0; j < shape_[1]; ++j) {
      work(memory_.data() + 2 * (i * strides_[0] + j * strides_[1]),
           static_cast<size_t>(shape_[2] * shape_[3]));
    }
  }
}

void FarTensor::upload(const std::vector<double>& values) {
  size_t at = 0;
  for_rows([&](char* row, size_t count) {
    std::vector<uint16_t> bits(count);
    for (auto& each : bits) numbers::encode(dtype_, values.at(at++), &each);
    API(lathe_copy_to_device(context_, row, bits.data(), 2 * count, nullptr));
  });
}

std::vector<double> FarTensor::download() const {
  std::vector<double> values;
  for_rows([&](const char* row, size_t count) {
    std::vector<uint16_t> bits(count);
    API(lathe_copy_to_host(context_, bits.data(), row, 2 * count, nullptr));
    for (const auto& each : bits) values.push_back(numbers::decode(dtype_, &each));
  });
  return values;
}

}  // namespace apitest
