// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Uploads of tables.
#include "api/device_table.h"

namespace lathe {

Result<std::unique_ptr<const DeviceTable>> DeviceTable::make(const Device& device,
                                                             std::span<const std::byte> bytes) {
  std::unique_ptr<DeviceTable> table(new DeviceTable(device));
  if (!bytes.empty()) LATHE_TRY(table->fill(bytes));
  return std::unique_ptr<const DeviceTable>(std::move(table));
}

// On a stream of its own: on the default stream it would wait for other ranks of the device.
Status DeviceTable::fill(std::span<const std::byte> bytes) {
  const Driver& driver = device_.driver();
  LATHE_TRY(check(driver, driver.cuMemAlloc(&memory_, bytes.size()), "cuMemAlloc"));
  CUstream stream = nullptr;
  LATHE_TRY(
      check(driver, driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate"));
  Status status =
      check(driver, driver.cuMemcpyHtoDAsync(memory_, bytes.data(), bytes.size(), stream),
            "cuMemcpyHtoDAsync");
  if (status.ok()) {
    status = check(driver, driver.cuStreamSynchronize(stream), "cuStreamSynchronize");
  }
  (void)driver.cuStreamDestroy(stream);
  return status;
}

DeviceTable::~DeviceTable() {
  if (memory_ == 0) return;
  const Device::Scope scope(device_);
  (void)device_.driver().cuMemFree(memory_);
}

}  // namespace lathe
