// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles initialisation, devices and what they say about themselves.
#include <cstdio>
#include <cstring>

#include "sim/driver/entry.h"
#include "sim/driver/report/report.h"

namespace sim::driver {
namespace {

void make_devices(Driver& driver) {
  for (int ordinal = 0; ordinal < driver.options.devices; ++ordinal) {
    auto device = std::make_unique<Device>();
    device->ordinal = ordinal;
    device->profile = driver.options.profile;
    if (driver.options.memory_bytes != 0)
      device->profile.memory_bytes = driver.options.memory_bytes;
    device->memory = std::make_unique<Memory>(ordinal, device->profile.memory_bytes);
    device->random.seed(driver.options.seed * 64 + static_cast<uint64_t>(ordinal));
    device->default_pool = driver.add(std::make_shared<Pool>());
    device->default_pool->device = device.get();
    device->current_pool = device->default_pool;
    driver.devices.push_back(std::move(device));
  }
}

// Numbers that are the same on every device modelled, by attribute.
bool common_attribute(CUdevice_attribute attribute, int* out) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
      *out = 1024;
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
      *out = 64;
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
      *out = 2147483647;
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
      *out = 65535;
      return true;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
      *out = 65536;
      return true;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
    case CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT:
      *out = 32;
      return true;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
    case CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT:
      *out = 512;
      return true;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
      *out = 5120;
      return true;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
      *out = 3;
      return true;
    case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
      *out = 1;
      return true;
    case CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO:
      *out = 2;
      return true;
    default:
      return false;
  }
}

// Numbers from the profile.
bool profile_attribute(const Profile& profile, CUdevice_attribute attribute, int* out) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      *out = profile.shared_per_block;
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
      *out = profile.registers_per_multiprocessor;
      return true;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
      *out = static_cast<int>(profile.clock_hz / 1000);
      return true;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:  // double data rate over 5120 bits, in kHz
      *out = static_cast<int>(profile.memory_bytes_per_second / (2 * 640) / 1000);
      return true;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *out = profile.multiprocessors;
      return true;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      *out = profile.l2_bytes;
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      *out = profile.threads_per_multiprocessor;
      return true;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *out = profile.major;
      return true;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *out = profile.minor;
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      *out = profile.shared_per_multiprocessor;
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      *out = profile.shared_per_block_optin;
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
      *out = profile.blocks_per_multiprocessor;
      return true;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
      *out = profile.shared_reserved;
      return true;
    case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED:
      *out = profile.clusters ? 1 : 0;
      return true;
    default:
      return false;
  }
}

}  // namespace
}  // namespace sim::driver

using namespace sim::driver;

SIM_API cuInit(unsigned flags) {
  return guarded([&]() -> CUresult {
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    Driver& driver = Driver::get();
    Lock lock(driver.mutex);
    if (driver.initialized) return CUDA_SUCCESS;
    std::string what;
    const bool good = read_options(&driver.options, &what);
    if (!good) {
      report_note(what);
      return CUDA_ERROR_NO_DEVICE;
    }
    open_reports(driver.options);
    make_devices(driver);
    sim::refuse_forks();
    driver.initialized = true;
    return CUDA_SUCCESS;
  });
}

// Before cuInit: the architecture, for a client that must not change the process's environment. "":
// LATHE_SIM_ARCH says.
SIM_EXTRA void lathe_sim_choose_arch(const char* arch) {
  guarded([&]() -> CUresult {
    Driver& driver = Driver::get();
    const Lock lock(driver.mutex);
    driver.options.arch = arch == nullptr ? "" : arch;
    return CUDA_SUCCESS;
  });
}

SIM_API cuDriverGetVersion(int* out) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // It may be asked before cuInit, which refuses what is wrong in the environment.
  Options options;
  std::string what;
  *out = read_options(&options, &what) ? options.driver_version : Options().driver_version;
  return CUDA_SUCCESS;
}

SIM_API cuDeviceGetCount(int* out) {
  return with_driver([&](Driver& driver, Lock&) -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = static_cast<int>(driver.devices.size());
    return CUDA_SUCCESS;
  });
}

SIM_API cuDeviceGet(CUdevice* out, int ordinal) {
  return with_device(ordinal, [&](Driver&, Lock&, Device&) -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = ordinal;
    return CUDA_SUCCESS;
  });
}

SIM_API cuDeviceGetName(char* out, int length, CUdevice ordinal) {
  return with_device(ordinal, [&](Driver&, Lock&, Device& device) -> CUresult {
    if (out == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
    std::snprintf(out, static_cast<size_t>(length), "lathe simulator %s (%s)",
                  device.profile.arch.c_str(), device.profile.name.c_str());
    return CUDA_SUCCESS;
  });
}

SIM_API cuDeviceGetUuid(CUuuid* out, CUdevice ordinal) {
  return with_device(ordinal, [&](Driver&, Lock&, Device& device) -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::memset(out->bytes, 0, sizeof out->bytes);
    std::memcpy(out->bytes, "lathe-sim", 9);
    out->bytes[15] = static_cast<char>(device.ordinal);
    return CUDA_SUCCESS;
  });
}

SIM_API cuDeviceTotalMem(size_t* out, CUdevice ordinal) {
  return with_device(ordinal, [&](Driver&, Lock&, Device& device) -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = device.memory->limit_bytes();
    return CUDA_SUCCESS;
  });
}

SIM_API cuDeviceGetAttribute(int* out, CUdevice_attribute attribute, CUdevice ordinal) {
  return with_device(ordinal, [&](Driver&, Lock&, Device& device) -> CUresult {
    if (out == nullptr || attribute < 1 || attribute >= CU_DEVICE_ATTRIBUTE_MAX) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) {
      *out = device.ordinal + 1;
    } else if (!common_attribute(attribute, out) &&
               !profile_attribute(device.profile, attribute, out)) {
      *out = 0;  // textures, interop, IPC, virtual memory: what the simulator does not have
    }
    return CUDA_SUCCESS;
  });
}

SIM_API cuDeviceGetPCIBusId(char* out, int length, CUdevice ordinal) {
  return with_device(ordinal, [&](Driver&, Lock&, Device& device) -> CUresult {
    if (out == nullptr || length < 13) return CUDA_ERROR_INVALID_VALUE;
    std::snprintf(out, static_cast<size_t>(length), "0000:%02x:00.0", device.ordinal + 1);
    return CUDA_SUCCESS;
  });
}
