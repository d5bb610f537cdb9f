// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles primary contexts: one per device, counted, revived after a reset under the same
// handle.
#include "sim/driver/context.h"
#include "sim/driver/entry.h"

using namespace sim::driver;

SIM_API cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice ordinal) {
  return with_device(ordinal, [&](Driver& driver, Lock&, Device& device) -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!device.primary) {
      device.primary = driver.add(std::make_shared<Context>());
      device.primary->primary = true;
      device.primary->alive = false;
      driver.contexts[device.primary->handle] = device.primary;
    }
    if (!device.primary->alive) start_context(driver, device, *device.primary);
    device.primary->flags = device.primary_flags;
    ++device.primary_references;
    *out = handle_of<CUcontext>(device.primary);
    return CUDA_SUCCESS;
  });
}

SIM_API cuDevicePrimaryCtxRelease(CUdevice ordinal) {
  return with_device(ordinal, [&](Driver& driver, Lock& lock, Device& device) -> CUresult {
    if (device.primary_references == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (--device.primary_references == 0) end_context(driver, lock, *device.primary, true);
    return CUDA_SUCCESS;
  });
}

SIM_API cuDevicePrimaryCtxReset(CUdevice ordinal) {
  return with_device(ordinal, [&](Driver& driver, Lock& lock, Device& device) -> CUresult {
    if (!device.primary || !device.primary->alive) return CUDA_SUCCESS;
    end_context(driver, lock, *device.primary, false);
    if (device.primary_references > 0) start_context(driver, device, *device.primary);
    return CUDA_SUCCESS;
  });
}

SIM_API cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned* flags, int* active) {
  return with_device(ordinal, [&](Driver&, Lock&, Device& device) -> CUresult {
    if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = device.primary_flags;
    *active = device.primary_references > 0 ? 1 : 0;
    return CUDA_SUCCESS;
  });
}

SIM_API cuDevicePrimaryCtxSetFlags(CUdevice ordinal, unsigned flags) {
  return with_device(ordinal, [&](Driver&, Lock&, Device& device) -> CUresult {
    if ((flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) != 0) return CUDA_ERROR_INVALID_VALUE;
    device.primary_flags = flags;
    if (device.primary) device.primary->flags = flags;
    return CUDA_SUCCESS;
  });
}
