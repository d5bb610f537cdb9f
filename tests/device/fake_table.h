// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This driver table has no device behind it and notes its calls, for tests of the code above the
// table.
#pragma once

#include <elf.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "device/driver.h"

namespace lathe::test {

struct FakeDevice {
  std::vector<std::string> calls;
  CUcontext current = nullptr;
  int retained = 0, libraries = 0;
  int dynamic_shared = 0;
  CUresult cubin_answer = CUDA_SUCCESS, ptx_answer = CUDA_SUCCESS, launch_answer = CUDA_SUCCESS;
  CUlaunchConfig launched = {};
  int first_parameter = 0;
  int major = 9, minor = 0;
};

// Returns the device that the table of fake_table() works on.
inline FakeDevice& fake() {
  static FakeDevice device;
  return device;
}

inline CUcontext fake_context() { return reinterpret_cast<CUcontext>(0x1000); }

inline bool starts_as_elf(const void* image) { return std::memcmp(image, ELFMAG, SELFMAG) == 0; }

inline void fill_devices(Driver& driver) {
  driver.cuGetErrorName = [](CUresult, const char** out) {
    *out = "CUDA_ERROR_FAKE";
    return CUDA_SUCCESS;
  };
  driver.cuGetErrorString = [](CUresult, const char** out) {
    *out = "a made-up error";
    return CUDA_SUCCESS;
  };
  driver.cuDeviceGetCount = [](int* out) {
    *out = 2;
    return CUDA_SUCCESS;
  };
  driver.cuDeviceGet = [](CUdevice* out, int ordinal) {
    *out = ordinal;
    return CUDA_SUCCESS;
  };
  driver.cuDeviceGetName = [](char* out, int, CUdevice) {
    std::strcpy(out, "Fake 9000");
    return CUDA_SUCCESS;
  };
  driver.cuDeviceGetAttribute = [](int* out, CUdevice_attribute which, CUdevice) {
    if (which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
      *out = fake().major;
    else if (which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
      *out = fake().minor;
    else
      *out = 1000 + static_cast<int>(which);
    return CUDA_SUCCESS;
  };
  driver.cuDevicePrimaryCtxRetain = [](CUcontext* out, CUdevice) {
    ++fake().retained;
    *out = fake_context();
    return CUDA_SUCCESS;
  };
  driver.cuDevicePrimaryCtxRelease = [](CUdevice) {
    --fake().retained;
    return CUDA_SUCCESS;
  };
}

inline void fill_contexts(Driver& driver) {
  driver.cuCtxGetCurrent = [](CUcontext* out) {
    *out = fake().current;
    return CUDA_SUCCESS;
  };
  driver.cuCtxPushCurrent = [](CUcontext context) {
    fake().calls.push_back("push");
    fake().current = context;
    return CUDA_SUCCESS;
  };
  driver.cuCtxPopCurrent = [](CUcontext* out) {
    fake().calls.push_back("pop");
    *out = fake().current;
    fake().current = nullptr;
    return CUDA_SUCCESS;
  };
}

inline void fill_code(Driver& driver) {
  driver.cuLibraryLoadData = [](CUlibrary* out, const void* image, CUjit_option*, void** values,
                                unsigned options, CUlibraryOption*, void**, unsigned) {
    const bool elf = starts_as_elf(image);
    fake().calls.push_back(elf ? "cubin" : "ptx");
    const CUresult answer = elf ? fake().cubin_answer : fake().ptx_answer;
    if (answer != CUDA_SUCCESS) {
      if (options > 0) std::strcpy(static_cast<char*>(values[0]), "line 7: no such instruction");
      return answer;
    }
    ++fake().libraries;
    *out = reinterpret_cast<CUlibrary>(0x2000);
    return CUDA_SUCCESS;
  };
  driver.cuLibraryUnload = [](CUlibrary) {
    --fake().libraries;
    return CUDA_ERROR_DEINITIALIZED;
  };
  driver.cuLibraryGetKernel = [](CUkernel* out, CUlibrary, const char* name) {
    fake().calls.push_back(name);
    *out = reinterpret_cast<CUkernel>(0x3000);
    return CUDA_SUCCESS;
  };
  driver.cuKernelGetFunction = [](CUfunction* out, CUkernel) {
    *out = reinterpret_cast<CUfunction>(0x4000);
    return CUDA_SUCCESS;
  };
  driver.cuFuncSetAttribute = [](CUfunction, CUfunction_attribute which, int value) {
    if (which == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) fake().dynamic_shared = value;
    return CUDA_SUCCESS;
  };
  driver.cuFuncLoad = [](CUfunction) {
    fake().calls.push_back("force");
    return CUDA_SUCCESS;
  };
  driver.cuLaunchKernelEx = [](const CUlaunchConfig* config, CUfunction, void** params, void**) {
    fake().launched = *config;
    fake().first_parameter = *static_cast<const int*>(params[0]);
    fake().calls.push_back("launch");
    return fake().launch_answer;
  };
}

inline std::shared_ptr<const Driver> fake_table() {
  fake() = FakeDevice();
  auto driver = std::make_shared<Driver>();
  driver->path = "fake";
  fill_devices(*driver);
  fill_contexts(*driver);
  fill_code(*driver);
  return driver;
}

inline std::string fake_cubin(uint16_t machine = 190) {
  Elf64_Ehdr header = {};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_machine = machine;
  return std::string(reinterpret_cast<const char*>(&header), sizeof(header));
}

}  // namespace lathe::test
