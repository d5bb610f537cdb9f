// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Holds a table on the device that is written once, before any kernel reads it.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "device/driver.h"

namespace lathe {

// Owns memory of a device. The device must outlive the table.
class DeviceTable {
 public:
  DeviceTable() = default;
  // Returns when the bytes are on the device, so the launch path must not call it.
  static Result<DeviceTable> upload(const Device& device, std::span<const std::byte> bytes);
  template <typename T>
  static Result<DeviceTable> upload(const Device& device, const std::vector<T>& values) {
    return upload(device, std::as_bytes(std::span(values)));
  }
  ~DeviceTable();
  DeviceTable(DeviceTable&& other) noexcept { *this = std::move(other); }
  DeviceTable& operator=(DeviceTable&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(address_, other.address_);
    return *this;
  }

  // Returns null for a table of no bytes.
  const char* data() const { return reinterpret_cast<const char*>(address_); }

 private:
  const Device* device_ = nullptr;
  CUdeviceptr address_ = 0;
};

}  // namespace lathe
