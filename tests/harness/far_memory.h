// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A range of device addresses, mostly never touched: for views whose rows lie far apart. On the
// simulator it is mapped but not backed, on a GPU it is allocated.
#pragma once

#include <memory>

#include "tests/harness/session.h"

namespace apitest {

class FarMemory {
 public:
  FarMemory(lathe_context* context, size_t bytes);
  ~FarMemory();
  FarMemory(const FarMemory&) = delete;
  FarMemory& operator=(const FarMemory&) = delete;
  char* data() const { return static_cast<char*>(data_); }

 private:
  size_t bytes_;
  void *data_ = nullptr, *library_ = nullptr;
  std::unique_ptr<Memory> memory_;
};

// A 16-bit view of four dimensions, the last two dense, whose rows may lie far apart.
class FarTensor {
 public:
  FarTensor(lathe_context* context, lathe_dtype dtype, std::vector<int64_t> shape,
            int64_t first_stride, int64_t second_stride);
  const DLTensor* dl() const { return &dl_; }
  void upload(const std::vector<double>& values);
  std::vector<double> download() const;

 private:
  template <typename Work>
  void for_rows(Work work) const;

  lathe_context* context_;
  lathe_dtype dtype_;
  std::vector<int64_t> shape_, strides_;
  FarMemory memory_;
  DLTensor dl_{};
};

}  // namespace apitest
