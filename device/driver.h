// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The one table of CUDA driver entry points, found by dlopen: the real libcuda.so.1, or the
// simulator's library of the same interface. Everything that touches a device goes through it.
#pragma once

#include <cuda.h>

#include <memory>
#include <string>
#include <vector>

#include "codegen/base/status.h"
#include "codegen/device_facts.h"

namespace lathe {

// Lists X(function). All are required but those that driver.cpp marks as optional.
#define LATHE_DRIVER_FUNCTIONS(X)      \
  X(cuInit)                            \
  X(cuDriverGetVersion)                \
  X(cuGetErrorName)                    \
  X(cuGetErrorString)                  \
  X(cuDeviceGet)                       \
  X(cuDeviceGetCount)                  \
  X(cuDeviceGetName)                   \
  X(cuDeviceGetAttribute)              \
  X(cuDeviceTotalMem)                  \
  X(cuDevicePrimaryCtxRetain)          \
  X(cuDevicePrimaryCtxRelease)         \
  X(cuCtxPushCurrent)                  \
  X(cuCtxPopCurrent)                   \
  X(cuCtxGetCurrent)                   \
  X(cuCtxSynchronize)                  \
  X(cuLibraryLoadData)                 \
  X(cuLibraryUnload)                   \
  X(cuLibraryGetKernel)                \
  X(cuKernelGetFunction)               \
  X(cuFuncGetAttribute)                \
  X(cuFuncSetAttribute)                \
  X(cuFuncLoad)                        \
  X(cuLaunchKernelEx)                  \
  X(cuStreamCreate)                    \
  X(cuStreamDestroy)                   \
  X(cuStreamSynchronize)               \
  X(cuStreamWaitEvent)                 \
  X(cuStreamIsCapturing)               \
  X(cuThreadExchangeStreamCaptureMode) \
  X(cuEventCreate)                     \
  X(cuEventDestroy)                    \
  X(cuEventRecord)                     \
  X(cuEventQuery)                      \
  X(cuEventSynchronize)                \
  X(cuEventElapsedTime)                \
  X(cuMemAlloc)                        \
  X(cuMemFree)                         \
  X(cuMemGetInfo)                      \
  X(cuMemcpyHtoDAsync)                 \
  X(cuMemcpyDtoHAsync)                 \
  X(cuMemcpyDtoDAsync)                 \
  X(cuMemsetD8Async)                   \
  X(cuTensorMapEncodeTiled)

struct Driver {
#define LATHE_DRIVER_MEMBER(name) decltype(&::name) name = nullptr;
  LATHE_DRIVER_FUNCTIONS(LATHE_DRIVER_MEMBER)
#undef LATHE_DRIVER_MEMBER
  std::string path;  // the library's file, for doctor and logs
  int version = 0;   // 13000
};

enum class DeviceChoice { cuda, sim };

// Returns the search order for one of the simulator's libraries: LATHE_SIM_DIR, else beside this
// library. `file` is "libcuda.so.1" or "libnccl.so.2".
std::vector<std::string> sim_library_paths(const std::string& file);

// Opens the library once per process and choice; later calls return the same table. Fails with
// NO_DEVICE, naming what was tried and, for cuda, that the simulator exists (LATHE_DEVICE=sim).
// `sim_arch`: the architecture of the simulator's devices; empty: the environment's.
Result<std::shared_ptr<const Driver>> open_driver(DeviceChoice choice,
                                                  const std::string& sim_arch = {});

// CUDA, with the call, the error's name and its sentence; ok for CUDA_SUCCESS.
Status check(const Driver& driver, CUresult result, const char* call);

// A device of one driver with its primary context retained. Thread-safe.
class Device {
 public:
  // `arch`: what to compile for; empty: the device's own.
  static Result<std::shared_ptr<const Device>> open(std::shared_ptr<const Driver> driver,
                                                    int ordinal, const std::string& arch);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const Driver& driver() const { return *driver_; }
  const DeviceFacts& facts() const { return facts_; }
  const std::string& name() const { return name_; }
  int ordinal() const { return ordinal_; }
  CUcontext context() const { return context_; }

  // Makes the context current for the life of the scope; nothing is pushed if it already is.
  class Scope {
   public:
    explicit Scope(const Device& device);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    const Status& status() const { return status_; }

   private:
    const Device& device_;
    bool pushed_ = false;
    Status status_;
  };

 private:
  Device() = default;
  std::shared_ptr<const Driver> driver_;
  DeviceFacts facts_;
  std::string name_;
  int ordinal_ = 0;
  CUcontext context_ = nullptr;
};

}  // namespace lathe

// LATHE_DRIVER_CALL(driver, cuMemFree, pointer): calls a function of the table and checks it.
#define LATHE_DRIVER_CALL(driver, name, ...) \
  ::lathe::check(driver, (driver).name(__VA_ARGS__), #name)
