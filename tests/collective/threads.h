// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file serves tests whose ranks are threads over the simulator's libraries.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "collective/group.h"

namespace threads {

using Rows = std::vector<int64_t>;

// Returns the simulator's device, or nothing and prints a line that says why.
inline std::shared_ptr<const lathe::Device> simulator() {
  const auto driver = lathe::open_driver(lathe::DeviceChoice::sim);
  lathe::Status why =
      driver.ok() ? lathe::open_nccl(lathe::NcclChoice::threads).status() : driver.status();
  if (why.ok()) {
    const auto device = lathe::Device::open(*driver, 0, "");
    if (device.ok()) return *device;
    why = device.status();
  }
  MESSAGE("skipped: ", why.text());
  return nullptr;
}

// A Memory is device memory of int64 values, used with the context current.
class Memory {
 public:
  Memory(const lathe::Device& device, size_t count) : driver_(device.driver()), count_(count) {
    REQUIRE(driver_.cuMemAlloc(&at_, std::max<size_t>(count, 1) * 8) == CUDA_SUCCESS);
    put(Rows(count, -1));
  }
  ~Memory() { driver_.cuMemFree(at_); }
  Memory(const Memory&) = delete;

  void put(const Rows& rows) {
    if (count_ == 0) return;
    REQUIRE(driver_.cuMemcpyHtoDAsync(at_, rows.data(), count_ * 8, nullptr) == CUDA_SUCCESS);
    REQUIRE(driver_.cuStreamSynchronize(nullptr) == CUDA_SUCCESS);
  }
  Rows get() const {
    Rows out(count_);
    if (count_ == 0) return out;
    REQUIRE(driver_.cuMemcpyDtoHAsync(out.data(), at_, count_ * 8, nullptr) == CUDA_SUCCESS);
    REQUIRE(driver_.cuStreamSynchronize(nullptr) == CUDA_SUCCESS);
    return out;
  }
  CUdeviceptr at() const { return at_; }
  void* pointer() const { return reinterpret_cast<void*>(at_); }
  size_t bytes() const { return count_ * 8; }

 private:
  const lathe::Driver& driver_;
  CUdeviceptr at_ = 0;
  size_t count_;
};

// Runs `body(rank)` on a thread for each rank; returns when all have.
inline void run_ranks(int world, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace threads
