// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Operators made of operators: what runs over ranks is the work of one rank on pieces, between
// exchanges. A part is a problem declared inside the library; its kernels are among the plan's.
#pragma once

#include <functional>
#include <initializer_list>

#include "ops/work.h"

namespace lathe {

// One inner operator. Its calls live on the stack of the outer run.
class Part {
 public:
  // `declare` gets an empty problem of operator `op`; extents that vary are kUnknown.
  static Result<std::unique_ptr<Part>> make(const char* op, const DeviceFacts& facts,
                                            const std::function<Status(lathe_problem&)>& declare);

  Work& work() const { return *work_; }

  // Puts a tensor into a call: its letters become the call's extents. `strides` in elements; none:
  // contiguous. The tensor must be declared.
  void put(Call* call, int tensor, const void* data, std::initializer_list<int64_t> extents,
           std::initializer_list<int64_t> strides = {}) const;

 private:
  std::unique_ptr<Work> work_;
  std::array<Shape, kMaxTensors> shapes_;  // of the declared tensors
};

// Short forms for `declare` above.
Status declare(lathe_problem& problem, const char* name, Dtype dtype,
               std::initializer_list<int64_t> extents);
Status set_option(lathe_problem& problem, const char* name, const std::string& value);

// A work with parts: lists their kernels and hands them on.
class ComposedWork : public Work {
 public:
  const std::vector<KernelSpec>& specs() const final { return specs_; }
  void bind(const std::vector<PlanKernel>& kernels) final;

 protected:
  // In the order of the plan's kernels. Null: not needed, and passed over.
  void add(const Part* part);
  // A kernel of its own, put into *loaded when kernels are handed over.
  void add(KernelSpec spec, std::shared_ptr<const Kernel>* loaded);

 private:
  struct Entry {
    const Part* part = nullptr;
    std::shared_ptr<const Kernel>* loaded = nullptr;
  };
  std::vector<Entry> entries_;
  std::vector<KernelSpec> specs_;
};

}  // namespace lathe
