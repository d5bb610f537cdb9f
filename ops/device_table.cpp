// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Uploads tables.
#include "ops/device_table.h"

#include "codegen/base/text.h"

namespace lathe {

// The upload has its own stream, because other streams of the context may wait for ranks that come
// here first.
Result<DeviceTable> DeviceTable::upload(const Device& device, std::span<const std::byte> bytes) {
  DeviceTable out;
  if (bytes.empty()) return out;
  const Driver& driver = device.driver();
  const Device::Scope scope(device);
  LATHE_TRY(scope.status());
  LATHE_TRY(check(driver, driver.cuMemAlloc(&out.address_, bytes.size()), "cuMemAlloc"));
  out.device_ = &device, out.bytes_ = bytes.size();
  CUstream stream = nullptr;
  LATHE_TRY(
      check(driver, driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate"));
  Status status =
      check(driver, driver.cuMemcpyHtoDAsync(out.address_, bytes.data(), bytes.size(), stream),
            "cuMemcpyHtoDAsync");
  if (status.ok()) {
    status = check(driver, driver.cuStreamSynchronize(stream), "cuStreamSynchronize");
  }
  (void)driver.cuStreamDestroy(stream);
  LATHE_TRY(status);
  return out;
}

// The driver has copied pageable memory when it returns.
Status DeviceTable::update(std::span<const std::byte> bytes, CUstream stream) const {
  if (bytes.size() != bytes_) {
    return {Code::internal, text("a table of ", bytes_, " bytes is given ", bytes.size())};
  }
  if (bytes.empty()) return {};
  const Driver& driver = device_->driver();
  return check(driver, driver.cuMemcpyHtoDAsync(address_, bytes.data(), bytes.size(), stream),
               "cuMemcpyHtoDAsync");
}

DeviceTable::~DeviceTable() {
  if (device_ == nullptr) return;
  const Device::Scope scope(*device_);
  (void)device_->driver().cuMemFree(address_);
}

}  // namespace lathe
