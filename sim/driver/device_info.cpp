// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles more ways to ask about devices and functions.
#include <cstdlib>
#include <string>

#include "sim/driver/code/function.h"
#include "sim/driver/code/image.h"
#include "sim/driver/code/members.h"
#include "sim/driver/entry.h"

using namespace sim::driver;

SIM_API cuDeviceGetByPCIBusId(CUdevice* out, const char* id) {
  return with_driver([&](Driver& driver, Lock&) -> CUresult {
    if (out == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const std::string text = id;
    const size_t bus = text.size() == 12 ? 5 : 0;  // with the domain, or without
    const bool shaped = (text.size() == 12 && text.compare(0, 5, "0000:") == 0) || text.size() == 7;
    if (!shaped || text.compare(bus + 2, 5, ":00.0") != 0) return CUDA_ERROR_INVALID_DEVICE;
    const long number = std::strtol(text.substr(bus, 2).c_str(), nullptr, 16);
    if (number < 1 || number > static_cast<long>(driver.devices.size())) {
      return CUDA_ERROR_INVALID_DEVICE;
    }
    *out = static_cast<CUdevice>(number - 1);
    return CUDA_SUCCESS;
  });
}

SIM_API cuDeviceComputeCapability(int* major, int* minor, CUdevice ordinal) {
  return with_device(ordinal, [&](Driver&, Lock&, Device& device) -> CUresult {
    if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *major = device.profile.major;
    *minor = device.profile.minor;
    return CUDA_SUCCESS;
  });
}

SIM_API cuDeviceGetProperties(CUdevprop* out, CUdevice ordinal) {
  return with_device(ordinal, [&](Driver&, Lock&, Device& device) -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const sim::Profile& profile = device.profile;
    *out = {1024,
            {1024, 1024, 64},
            {2147483647, 65535, 65535},
            profile.shared_per_block,
            65536,
            32,
            2147483647,
            profile.registers_per_multiprocessor,
            static_cast<int>(profile.clock_hz / 1000),
            512};
    return CUDA_SUCCESS;
  });
}

SIM_API cuDeviceGetExecAffinitySupport(int* out, CUexecAffinityType type, CUdevice ordinal) {
  return with_device(ordinal, [&](Driver&, Lock&, Device&) -> CUresult {
    if (out == nullptr || type != CU_EXEC_AFFINITY_TYPE_SM_COUNT) return CUDA_ERROR_INVALID_VALUE;
    *out = 0;
    return CUDA_SUCCESS;
  });
}

SIM_API cuFuncSetSharedMemConfig(CUfunction handle, CUsharedconfig config) {
  return with_function(handle, [&](Function&, const sim::Profile&) {
    const bool known = config >= CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE &&
                       config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE;
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

SIM_API cuKernelSetCacheConfig(CUkernel handle, CUfunc_cache config, CUdevice ordinal) {
  return with_device(ordinal, [&](Driver& driver, Lock&, Device&) -> CUresult {
    if (!driver.find<LibraryKernel>(handle)) return CUDA_ERROR_INVALID_HANDLE;
    const bool known = config >= CU_FUNC_CACHE_PREFER_NONE && config <= CU_FUNC_CACHE_PREFER_EQUAL;
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

SIM_API cuKernelGetLibrary(CUlibrary* out, CUkernel handle) {
  return ask<LibraryKernel>(out, handle, [](const LibraryKernel& kernel) {
    return reinterpret_cast<CUlibrary>(kernel.library->handle);
  });
}

// No PTX has unified functions.
SIM_API cuLibraryGetUnifiedFunction(void** out, CUlibrary handle, const char* name) {
  return with_driver([&](Driver& driver, Lock&) -> CUresult {
    if (out == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return driver.find<Library>(handle) ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
  });
}

SIM_API cuLibraryLoadFromFile(CUlibrary* out, const char* path, CUjit_option* options,
                              void** values, unsigned count, CUlibraryOption* library_options,
                              void** library_values, unsigned library_count) {
  return guarded([&]() -> CUresult {
    std::string image;
    const CUresult result = read_file(path, &image);
    if (result != CUDA_SUCCESS) return result;
    return cuLibraryLoadData(out, image.c_str(), options, values, count, library_options,
                             library_values, library_count);
  });
}

SIM_API cuModuleEnumerateFunctions(CUfunction* out, unsigned count, CUmodule handle) {
  return with_context([&](Driver& driver, Lock&, Context&) {
    return list_members(out, count, driver.find<Module>(handle), &Module::functions);
  });
}

SIM_API cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* block, CUfunction handle,
                                                  CUoccupancyB2DSize shared_of, size_t shared,
                                                  int limit, unsigned flags) {
  if (flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) return CUDA_ERROR_INVALID_VALUE;
  return cuOccupancyMaxPotentialBlockSize(grid, block, handle, shared_of, shared, limit);
}
