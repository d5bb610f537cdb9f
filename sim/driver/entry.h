// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Every exported function begins here: it refuses forked children, a driver that is not initialised
// and calls from host functions, finds the current context, takes the lock and throws nothing.
#pragma once

#include <cuda.h>

#include "sim/driver/forked.h"
#include "sim/driver/state.h"

// This macro marks the simulator's own entries, lathe_sim_*, which clients find with dlsym.
#define SIM_EXTRA extern "C" __attribute__((visibility("default")))
#define SIM_API extern "C" __attribute__((visibility("default"))) CUresult CUDAAPI

namespace sim::driver {

// Returns the context on top of this thread's stack, or null. The caller holds the lock.
Context* current_context();

template <typename F>
CUresult guarded(F body) noexcept {
  if (forked()) return CUDA_ERROR_NOT_INITIALIZED;
  return without_exceptions(CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN, body);
}

// Runs body(Driver&, Lock&).
template <typename F>
CUresult with_driver(F body) noexcept {
  return guarded([&]() -> CUresult {
    if (thread_state().in_host_function) return CUDA_ERROR_NOT_PERMITTED;
    Driver& driver = Driver::get();
    Lock lock(driver.mutex);
    if (!driver.initialized) return CUDA_ERROR_NOT_INITIALIZED;
    return body(driver, lock);
  });
}

// Runs body(Driver&, Lock&, Device&).
template <typename F>
CUresult with_device(CUdevice ordinal, F body) noexcept {
  return with_driver([&](Driver& driver, Lock& lock) -> CUresult {
    if (ordinal < 0 || ordinal >= static_cast<int>(driver.devices.size())) {
      return CUDA_ERROR_INVALID_DEVICE;
    }
    return body(driver, lock, *driver.devices[ordinal]);
  });
}

// Runs body(Driver&, Lock&, Context&); a context killed by a fault answers with that fault.
template <typename F>
CUresult with_context(F body) noexcept {
  return with_driver([&](Driver& driver, Lock& lock) -> CUresult {
    if (thread_state().stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    Context* context = current_context();
    if (context == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (context->error != CUDA_SUCCESS) return context->error;
    return body(driver, lock, *context);
  });
}

// Writes what `value` says of the object to `out`.
template <typename Object, typename Out, typename Handle, typename F>
CUresult ask(Out* out, Handle handle, F value) noexcept {
  return with_driver([&](Driver& driver, Lock&) -> CUresult {
    const auto object = driver.find<Object>(handle);
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!object) return CUDA_ERROR_INVALID_HANDLE;
    *out = value(*object);
    return CUDA_SUCCESS;
  });
}

}  // namespace sim::driver
