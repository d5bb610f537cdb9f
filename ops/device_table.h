// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Holds tables on the device that are written before any kernel reads them.
#pragma once

#include <cstddef>
#include <cstring>
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
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  // Writes other bytes, as many as it has, in the order of the stream: what is on it so far reads
  // the old ones. Does not allocate, and is done with the bytes on return.
  Status update(std::span<const std::byte> bytes, CUstream stream) const;

  size_t bytes() const { return bytes_; }
  // Returns null for a table of no bytes.
  const char* data() const { return reinterpret_cast<const char*>(address_); }

 private:
  const Device* device_ = nullptr;
  CUdeviceptr address_ = 0;
  size_t bytes_ = 0;
};

// Collects tables that lie one behind another in one DeviceTable.
class TableImage {
 public:
  // Returns where the table begins.
  template <typename T>
  size_t add(const std::vector<T>& values) {
    constexpr size_t kAlignment = 16;
    const size_t at = (bytes_.size() + kAlignment - 1) / kAlignment * kAlignment;
    const size_t count = values.size() * sizeof(T);
    bytes_.resize(at + count);
    if (count > 0) std::memcpy(bytes_.data() + at, values.data(), count);
    return at;
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace lathe
