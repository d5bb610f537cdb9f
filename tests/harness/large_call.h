// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A LargeCall is a prepared call of any operator through lathe.h, large enough to be timed or
// counted: tensors by name, each drawn from a table that repeats, and what they hold.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/harness/session.h"

namespace apitest {

class LargeTensors {
 public:
  using Names = std::vector<std::string>;
  using Counts = std::vector<std::pair<const char*, int64_t>>;

  explicit LargeTensors(lathe_context* context) : context_(context) {}

  void add(const std::string& name, lathe_dtype dtype, std::vector<int64_t> shape);
  // Fills an input with normal values, or with what `change` makes of them. A table of odd period
  // repeats: cheap for gigabytes, different from row to row.
  void draw(const std::string& name, uint64_t seed,
            const std::function<double(double)>& change = {});
  void upload(const std::string& name, std::vector<unsigned char> bytes);
  // Uploads an input of integers.
  template <typename Integer>
  void upload(const std::string& name, const std::vector<Integer>& values) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(values.data());
    upload(name, std::vector<unsigned char>(bytes, bytes + values.size() * sizeof(Integer)));
  }
  // Reads back everything that is no input.
  void read_back() const;

  bool has(const std::string& name) const { return slots_.contains(name); }
  size_t size() const { return slots_.size(); }
  Names names() const;
  const std::vector<int64_t>& shape(const std::string& name) const { return slots_.at(name).shape; }
  lathe_dtype dtype(const std::string& name) const { return slots_.at(name).dtype; }
  const DLTensor* dl(const std::string& name) const { return &slots_.at(name).tensor; }
  const unsigned char* bytes(const std::string& name) const { return slots_.at(name).bytes.data(); }
  // Returns `count` elements from `first` on, as uploaded or read back.
  std::vector<double> values(const std::string& name, int64_t first, int64_t count) const;

  // Makes a problem with the options, and with the tensors of these names in all their extents.
  Problem problem(const char* op, const Counts& options, const Names& names) const;
  lathe_context* context() const { return context_; }

 private:
  struct Slot {
    lathe_dtype dtype = LATHE_BF16;
    std::vector<int64_t> shape;
    std::unique_ptr<Memory> memory;
    bool input = false;
    mutable std::vector<unsigned char> bytes;  // what it holds, as far as that is known here
    DLTensor tensor{};
  };

  lathe_context* context_;
  std::map<std::string, Slot> slots_;
};

// Holds a plan for some of the tensors, and its workspace.
class LargeCall {
 public:
  LargeCall() = default;
  LargeCall(const LargeTensors& tensors, const lathe_problem* problem,
            const LargeTensors::Names& names);
  void run(void* stream) const;
  const lathe_plan* plan() const { return plan_.get(); }
  lathe_estimate estimate() const;
  size_t workspace_bytes() const { return workspace_->bytes(); }

 private:
  Plan plan_;
  std::vector<const DLTensor*> order_;
  std::unique_ptr<Memory> workspace_;
};

}  // namespace apitest
