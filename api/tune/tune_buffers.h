// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The device memory of one tuning: outputs with guards around them, a workspace, and what is
// written to empty the L2 cache.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/plan.h"
#include "api/tune/tune_compare.h"

namespace lathe {

// Freed at its end, unless it was abandoned: freeing would wait for a kernel that never ends.
class TuneMemory {
 public:
  explicit TuneMemory(const Device& device) : device_(&device) {}
  ~TuneMemory();
  TuneMemory(const TuneMemory&) = delete;
  TuneMemory& operator=(const TuneMemory&) = delete;

  Status reserve(size_t bytes);  // at least; what was there before is lost if it was less
  void abandon() { address_ = 0; }
  CUdeviceptr at() const { return address_; }
  void* pointer() const { return reinterpret_cast<void*>(address_); }
  size_t bytes() const { return bytes_; }

 private:
  const Device* device_;
  CUdeviceptr address_ = 0;
  size_t bytes_ = 0;
};

// The caller's tensors, those that a run writes replaced by copies: the caller's are only read.
class TuneTensors {
 public:
  static constexpr size_t kGuard = 256;

  static Result<std::unique_ptr<TuneTensors>> make(const Device& device,
                                                   const lathe_problem& problem,
                                                   const std::vector<Slot>& slots,
                                                   const DLTensor* const* given);

  // Outputs and guards hold a pattern (not a number, in floats), what is in and out its first
  // value. Enqueued.
  Status restore(CUstream stream) const;
  // Returns the bytes of every output with its guards, when they are here.
  Result<std::vector<std::string>> read(CUstream stream) const;
  // Returns INVALID_ARGUMENT with the first that differs.
  Status compare(const std::vector<std::string>& filled, const std::vector<std::string>& expected,
                 const std::vector<std::string>& found) const;

  const DLTensor* const* slots() const { return pointers_.data(); }
  void abandon();

 private:
  struct Output {
    OutputLayout layout;
    std::unique_ptr<TuneMemory> memory;
    CUdeviceptr original = 0;  // of what is in and out
  };
  explicit TuneTensors(const Device& device) : device_(&device) {}
  Status add(const Slot& slot, bool inout, const DLTensor* given);

  const Device* device_;
  std::vector<DLTensor> tensors_;
  std::vector<const DLTensor*> pointers_;
  std::vector<Output> outputs_;
};

}  // namespace lathe
