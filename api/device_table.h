// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A table that is made once on the host and read by kernels ever after.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "cache/driver.h"

namespace lathe {

// Device memory of the device that must outlive it.
class DeviceTable {
 public:
  // Allocates, copies and waits: not for the launch path. The device's context must be current.
  static Result<std::unique_ptr<const DeviceTable>> make(const Device& device,
                                                         std::span<const std::byte> bytes);
  ~DeviceTable();
  DeviceTable(const DeviceTable&) = delete;
  DeviceTable& operator=(const DeviceTable&) = delete;

  // Null for a table of no bytes.
  const char* data() const { return reinterpret_cast<const char*>(memory_); }

 private:
  explicit DeviceTable(const Device& device) : device_(device) {}
  Status fill(std::span<const std::byte> bytes);

  const Device& device_;
  CUdeviceptr memory_ = 0;
};

}  // namespace lathe
