// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A table on the device that is written once, before anybody reads it.
#pragma once

#include <utility>

#include "cache/driver.h"

namespace lathe {

class DeviceTable {
 public:
  DeviceTable() = default;
  // Returns when the bytes are there. On a stream of its own: other streams of the context may wait
  // for ranks that come here first.
  static Result<DeviceTable> upload(const Device& device, const void* data, size_t bytes);
  ~DeviceTable();
  DeviceTable(DeviceTable&& other) noexcept { *this = std::move(other); }
  DeviceTable& operator=(DeviceTable&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(address_, other.address_);
    return *this;
  }

  // Null if there is nothing in it.
  const char* data() const { return reinterpret_cast<const char*>(address_); }

 private:
  const Device* device_ = nullptr;
  CUdeviceptr address_ = 0;
};

}  // namespace lathe
