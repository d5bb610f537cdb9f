// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file says which device each thread uses, and has the primary contexts behind that.
#include <mutex>
#include <vector>

#include "sim/runtime/registry.h"

namespace sim::runtime {
namespace {

thread_local int chosen_device = 0;

Result check_device(int device) {
  int count = 0;
  const Result result = driver().cuDeviceGetCount(&count);
  if (result.failed()) return result;
  return device >= 0 && device < count ? cudaSuccess : cudaErrorInvalidDevice;
}

Result make_current(int device) {
  CUcontext context = nullptr;
  const Result result = primary_context(device, &context);
  return result.failed() ? result : Result(driver().cuCtxSetCurrent(context));
}

}  // namespace

Result primary_context(int device, CUcontext* out) {
  const Result known = check_device(device);
  if (known.failed()) return known;
  static std::mutex mutex;
  static auto& held = *new std::vector<CUcontext>;
  const std::lock_guard lock(mutex);
  if (device >= static_cast<int>(held.size())) held.resize(static_cast<size_t>(device) + 1);
  CUcontext& context = held[static_cast<size_t>(device)];
  if (context == nullptr) {
    const Result result = driver().cuDevicePrimaryCtxRetain(&context, device);
    if (result.failed()) return result;
  }
  *out = context;
  return cudaSuccess;
}

Result current_device(int* out) {
  CUcontext current = nullptr;
  const Result result = driver().cuCtxGetCurrent(&current);
  if (result.failed()) return result;
  if (current != nullptr) return driver().cuCtxGetDevice(out);
  *out = chosen_device;
  return cudaSuccess;
}

Result need_context() {
  CUcontext current = nullptr;
  const Result result = driver().cuCtxGetCurrent(&current);
  return result.failed() || current != nullptr ? result : make_current(chosen_device);
}

}  // namespace sim::runtime

using namespace sim::runtime;

SIM_RUNTIME cudaError_t cudaGetDeviceCount(int* count) {
  return with_driver([&](const Driver& driver) -> Result {
    if (count == nullptr) return cudaErrorInvalidValue;
    const Result result = driver.cuDeviceGetCount(count);
    return !result.failed() && *count == 0 ? Result(cudaErrorNoDevice) : result;
  });
}

SIM_RUNTIME cudaError_t cudaGetDevice(int* device) {
  return with_driver([&](const Driver&) -> Result {
    return device == nullptr ? Result(cudaErrorInvalidValue) : current_device(device);
  });
}

SIM_RUNTIME cudaError_t cudaSetDevice(int device) {
  return with_driver([&](const Driver&) -> Result {
    const Result result = make_current(device);
    if (!result.failed()) chosen_device = device;
    return result;
  });
}

SIM_RUNTIME cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned flags) {
  constexpr unsigned kFlagsAreValid = 1;
  return with_driver([&](const Driver& driver) -> Result {
    if ((flags & ~kFlagsAreValid) != 0) return cudaErrorInvalidValue;
    Result result = check_device(device);
    if (!result.failed() && flags == kFlagsAreValid) {
      result = driver.cuDevicePrimaryCtxSetFlags(device, device_flags);
    }
    CUcontext context = nullptr;
    return result.failed() ? result : primary_context(device, &context);
  });
}

SIM_RUNTIME cudaError_t cudaSetDeviceFlags(unsigned flags) {
  return with_driver([&](const Driver& driver) -> Result {
    int device = 0;
    const Result result = current_device(&device);
    return result.failed() ? result : Result(driver.cuDevicePrimaryCtxSetFlags(device, flags));
  });
}

SIM_RUNTIME cudaError_t cudaGetDeviceFlags(unsigned* flags) {
  return with_driver([&](const Driver& driver) -> Result {
    if (flags == nullptr) return cudaErrorInvalidValue;
    int device = 0, active = 0;
    const Result result = current_device(&device);
    if (result.failed()) return result;
    return driver.cuDevicePrimaryCtxGetState(device, flags, &active);
  });
}

SIM_RUNTIME cudaError_t cudaDeviceReset() {
  return with_driver([&](const Driver& driver) -> Result {
    int device = 0;
    Result result = current_device(&device);
    if (result.failed()) return result;
    result = driver.cuDevicePrimaryCtxReset(device);
    if (result.failed()) return result;
    forget_errors();
    return renew_managed();
  });
}
