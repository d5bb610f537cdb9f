// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Every exported function begins here: it finds the driver, makes a context current where one is
// needed, records its error for cudaGetLastError and throws nothing.
#pragma once

#include <cstdint>
#include <new>

#include "sim/runtime/driver.h"
#include "sim/runtime/error.h"

#define SIM_RUNTIME extern "C" __attribute__((visibility("default")))

namespace sim::runtime {

// Returns the device that this thread's calls mean: that of its current context, or the one that
// cudaSetDevice chose.
Result current_device(int* out);
// Makes the primary context of the thread's device current unless the thread has a context.
Result need_context();

// Returns the device's primary context, which the runtime holds from its first use on.
Result primary_context(int device, CUcontext* out);

template <typename F>
cudaError_t guarded(F body) noexcept {
  try {
    return record(Result(body()).error);
  } catch (const std::bad_alloc&) {
    return record(cudaErrorMemoryAllocation);
  } catch (...) {
    return record(cudaErrorUnknown);
  }
}

// Runs body(const Driver&).
template <typename F>
cudaError_t with_driver(F body) noexcept {
  return guarded([&]() -> Result {
    const Driver* driver = nullptr;
    const cudaError_t error = load_driver(&driver);
    return error != cudaSuccess ? Result(error) : Result(body(*driver));
  });
}

// Runs body(const Driver&) in a context.
template <typename F>
cudaError_t with_context(F body) noexcept {
  return with_driver([&](const Driver& driver) -> Result {
    const Result ready = need_context();
    return ready.failed() ? ready : Result(body(driver));
  });
}

// The stream that a call means whose default stream is the thread's own.
inline cudaStream_t own(cudaStream_t stream) {
  return stream == nullptr ? CU_STREAM_PER_THREAD : stream;
}

inline CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

}  // namespace sim::runtime
