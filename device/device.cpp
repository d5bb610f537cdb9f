// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A device with its primary context, and the facts that choices depend on.
#include "codegen/base/text.h"
#include "device/driver.h"

namespace lathe {
namespace {

struct Attribute {
  CUdevice_attribute which;
  const char* name;
  int* to;
};

Status read_attributes(const Driver& driver, CUdevice device, int& major, int& minor,
                       DeviceFacts& facts) {
  const Attribute attributes[] = {
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, "compute capability, major", &major},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, "compute capability, minor", &minor},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, "multiprocessors", &facts.multiprocessors},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, "shared memory per block",
       &facts.shared_bytes_per_block},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, "shared memory per multiprocessor",
       &facts.shared_bytes_per_multiprocessor},
      {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, "registers per multiprocessor",
       &facts.registers_per_multiprocessor},
      {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, "L2 size", &facts.l2_bytes},
  };
  for (const Attribute& attribute : attributes) {
    const std::string call = text("cuDeviceGetAttribute(", attribute.name, ")");
    LATHE_TRY(check(driver, driver.cuDeviceGetAttribute(attribute.to, attribute.which, device),
                    call.c_str()));
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const Device>> Device::open(std::shared_ptr<const Driver> driver,
                                                   int ordinal, const std::string& arch) {
  int count = 0;
  LATHE_TRY(check(*driver, driver->cuDeviceGetCount(&count), "cuDeviceGetCount"));
  if (ordinal < 0 || ordinal >= count)
    return Status(Code::no_device, text("device ", ordinal, " does not exist: ", driver->path,
                                        " has ", count, ", counted from 0"));
  CUdevice handle = 0;
  LATHE_TRY(check(*driver, driver->cuDeviceGet(&handle, ordinal), "cuDeviceGet"));

  std::shared_ptr<Device> device(new Device);
  device->ordinal_ = ordinal;
  char name[256] = {};
  LATHE_TRY(
      check(*driver, driver->cuDeviceGetName(name, sizeof(name) - 1, handle), "cuDeviceGetName"));
  device->name_ = name;
  int major = 0, minor = 0;
  LATHE_TRY(read_attributes(*driver, handle, major, minor, device->facts_));
  if (arch.empty()) {
    LATHE_ASSIGN(device->facts_.arch, arch_of_capability(major, minor));
  } else {
    device->facts_.arch = arch;
  }
  // The driver does not tell what a device can reach.
  add_published_rates(device->name_, &device->facts_);

  LATHE_TRY(check(*driver, driver->cuDevicePrimaryCtxRetain(&device->context_, handle),
                  "cuDevicePrimaryCtxRetain"));
  device->driver_ = std::move(driver);  // from here on the destructor releases the context
  return std::shared_ptr<const Device>(std::move(device));
}

Device::~Device() {
  if (!driver_) return;
  CUdevice handle = 0;
  if (driver_->cuDeviceGet(&handle, ordinal_) == CUDA_SUCCESS)
    driver_->cuDevicePrimaryCtxRelease(handle);
}

Device::Scope::Scope(const Device& device) : device_(device) {
  const Driver& driver = device.driver();
  CUcontext current = nullptr;
  if (driver.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == device.context()) return;
  status_ = check(driver, driver.cuCtxPushCurrent(device.context()), "cuCtxPushCurrent");
  pushed_ = status_.ok();
}

Device::Scope::~Scope() {
  CUcontext popped = nullptr;
  if (pushed_) device_.driver().cuCtxPopCurrent(&popped);
}

}  // namespace lathe
