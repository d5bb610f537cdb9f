// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The rows of a FarTensor lie billions of elements apart: only the rows themselves are ever
// touched. On the simulator its addresses are mapped but not backed, on a GPU they are allocated.
#pragma once

#include <memory>

#include "tests/harness/session.h"

namespace apitest {

class FarTensor {
 public:
  // The last dim is contiguous; `strides` are in elements, one for each dim. Copies run in
  // `stream`.
  FarTensor(lathe_context* context, lathe_dtype dtype, std::vector<int64_t> shape,
            std::vector<int64_t> strides, void* stream = nullptr);
  ~FarTensor();
  FarTensor(const FarTensor&) = delete;
  FarTensor& operator=(const FarTensor&) = delete;
  const DLTensor* dl() const { return &dl_; }
  void upload(const std::vector<double>& values);
  std::vector<double> download() const;

 private:
  void map();
  // Returns the address of the row that element number `flat` begins.
  char* row_at(size_t flat) const;

  lathe_context* context_;
  void* stream_;
  lathe_dtype dtype_;
  std::vector<int64_t> shape_, strides_;
  size_t bytes_ = 0;
  void *data_ = nullptr, *library_ = nullptr;
  std::unique_ptr<Memory> memory_;  // on a GPU
  DLTensor dl_{};
};

}  // namespace apitest
