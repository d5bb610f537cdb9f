// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Operators made of operators: a rank runs the executors of single steps on pieces of tensors,
// between exchanges. The kernels of the steps are among those of the plan.
#pragma once

#include <initializer_list>

#include "ops/executor.h"

namespace lathe {

// A step. Its calls live on the stack of the outer run.
class Part {
 public:
  // `executor` was made for a request of operator `op`, whose table says what tensors are called.
  static Result<std::unique_ptr<Part>> make(const char* op,
                                            Result<std::unique_ptr<Executor>> executor);

  Executor& executor() const { return *executor_; }

  // Puts a tensor into a call: its dims become the call's extents. `strides` in elements; none:
  // contiguous. The number of extents says which of the table's shapes the tensor has.
  void put(Call* call, int tensor, const void* data, std::initializer_list<int64_t> extents,
           std::initializer_list<int64_t> strides = {}) const;

 private:
  std::unique_ptr<Executor> executor_;
  std::vector<std::array<Shape, kMaxRank + 1>> shapes_;  // by tensor and rank
};

}  // namespace lathe
