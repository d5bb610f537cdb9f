// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A table on the device that is written once, before anybody reads it.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "cache/driver.h"

namespace lathe {

// Memory of a device that must outlive it.
class DeviceTable {
 public:
  DeviceTable() = default;
  // Returns when the bytes are there: not for the launch path.
  static Result<DeviceTable> upload(const Device& device, std::span<const std::byte> bytes);
  ~DeviceTable();
  DeviceTable(DeviceTable&& other) noexcept { *this = std::move(other); }
  DeviceTable& operator=(DeviceTable&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(address_, other.address_);
    return *this;
  }

  // Null for a table of no bytes.
  const char* data() const { return reinterpret_cast<const char*>(address_); }

 private:
  const Device* device_ = nullptr;
  CUdeviceptr address_ = 0;
};

}  // namespace lathe
