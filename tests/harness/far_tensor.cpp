// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/harness/far_tensor.h"

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

FarTensor::FarTensor(lathe_context* context, lathe_dtype dtype, std::vector<int64_t> shape,
                     std::vector<int64_t> strides, void* stream)
    : context_(context),
      stream_(stream),
      dtype_(dtype),
      shape_(std::move(shape)),
      strides_(std::move(strides)) {
  int64_t last = 0;
  for (size_t i = 0; i < shape_.size(); ++i) last += (shape_[i] - 1) * strides_[i];
  const size_t each = numbers::bytes_of(dtype);
  bytes_ = each * static_cast<size_t>(last + 1);
  map();
  dl_ = describe(data_, dtype, shape_);
  dl_.strides = strides_.data();
}

void FarTensor::map() {
  if (!on_simulator()) {
    memory_ = std::make_unique<Memory>(context_, bytes_);
    data_ = memory_->data();
    return;
  }
  data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
               -1, 0);
  REQUIRE(data_ != MAP_FAILED);
  lathe_context_info info{};
  info.size = sizeof info;
  API(lathe_context_get_info(context_, &info));
  library_ = dlopen(info.driver_path, RTLD_NOW | RTLD_NOLOAD);
  REQUIRE(library_ != nullptr);
  with_context(library_, [&] {
    const auto add = find<decltype(&cuMemHostRegister)>(library_, "cuMemHostRegister_v2");
    REQUIRE(add(data_, bytes_, CU_MEMHOSTREGISTER_DEVICEMAP) == CUDA_SUCCESS);
  });
}

FarTensor::~FarTensor() {
  if (library_ == nullptr) return;
  with_context(library_, [&] {
    find<decltype(&cuMemHostUnregister)>(library_, "cuMemHostUnregister")(data_);
  });
  munmap(data_, bytes_);
}

char* FarTensor::row_at(size_t flat) const {
  int64_t at = 0;
  for (size_t i = shape_.size(); i-- > 0;) {
    const size_t extent = static_cast<size_t>(shape_[i]);
    at += static_cast<int64_t>(flat % extent) * strides_[i];
    flat /= extent;
  }
  return static_cast<char*>(data_) + at * static_cast<int64_t>(numbers::bytes_of(dtype_));
}

void FarTensor::upload(const std::vector<double>& values) {
  const size_t each = numbers::bytes_of(dtype_);
  std::vector<unsigned char> row(static_cast<size_t>(shape_.back()) * each);
  for (size_t at = 0; at < values.size();) {
    char* to = row_at(at);
    for (size_t i = 0; i < row.size(); i += each) numbers::encode(dtype_, values[at++], &row[i]);
    API(lathe_copy_to_device(context_, to, row.data(), row.size(), stream_));
  }
}

std::vector<double> FarTensor::download() const {
  const size_t each = numbers::bytes_of(dtype_);
  std::vector<unsigned char> row(static_cast<size_t>(shape_.back()) * each);
  size_t count = 1;
  for (const int64_t extent : shape_) count *= static_cast<size_t>(extent);
  std::vector<double> values;
  while (values.size() < count) {
    API(lathe_copy_to_host(context_, row.data(), row_at(values.size()), row.size(), stream_));
    for (size_t i = 0; i < row.size(); i += each) {
      values.push_back(numbers::decode(dtype_, &row[i]));
    }
  }
  return values;
}

}  // namespace apitest
