// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "api/device_table.h"

namespace lathe {

Result<DeviceTable> DeviceTable::upload(const Device& device, const void* data, size_t bytes) {
  DeviceTable out;
  if (bytes == 0) return out;
  const Driver& driver = device.driver();
  const Device::Scope scope(device);
  LATHE_TRY(scope.status());
  LATHE_TRY(check(driver, driver.cuMemAlloc(&out.address_, bytes), "cuMemAlloc"));
  out.device_ = &device;
  CUstream stream = nullptr;
  LATHE_TRY(
      check(driver, driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate"));
  Status status = check(driver, driver.cuMemcpyHtoDAsync(out.address_, data, bytes, stream),
                        "cuMemcpyHtoDAsync");
  if (status.ok())
    status = check(driver, driver.cuStreamSynchronize(stream), "cuStreamSynchronize");
  (void)driver.cuStreamDestroy(stream);
  LATHE_TRY(status);
  return out;
}

DeviceTable::~DeviceTable() {
  if (device_ == nullptr) return;
  const Device::Scope scope(*device_);
  (void)device_->driver().cuMemFree(address_);
}

}  // namespace lathe
