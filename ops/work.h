// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What an operator does behind a plan: its kernels, and a call of them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cache/registry.h"
#include "codegen/launch_shape.h"
#include "ops/group.h"
#include "ops/kernel_problems.h"
#include "ops/resolve.h"
#include "ops/tensors.h"

namespace lathe {

struct PlanKernel {
  std::shared_ptr<const BuiltKernel> built;
  std::shared_ptr<const Kernel> loaded;  // null in a context without a device
  std::string spec_text, key_hex;        // lent to callers
};

struct Estimate {
  uint64_t launches = 0;
  Cost cost;
  uint64_t exchanges = 0, exchange_bytes = 0;  // NCCL groups, and what this rank sends in them
};

// What an operator does with a checked call. Immutable: one object serves every thread.
class Work {
 public:
  virtual ~Work() = default;
  // Every kernel, in the order in which the plan lists them.
  virtual const std::vector<KernelSpec>& specs() const = 0;
  // Hands over the loaded kernels, in that order.
  virtual void bind(const std::vector<PlanKernel>& kernels) = 0;
  // What runs on this shard need that only the lengths tell: once per shard, off the launch path.
  // May allocate, and talk to the other ranks. Null: nothing.
  virtual Result<std::unique_ptr<const Prepared>> prepare(const lathe_shard&) const {
    return std::unique_ptr<const Prepared>();
  }
  virtual Result<size_t> workspace_bytes(const Call& call) const = 0;
  // Checks the workspace before it launches or sends anything: what a run works out says how much
  // it needs, and to work it out twice would be a sixth of a launch.
  virtual Status run(const Call& call) const = 0;
  virtual Result<Estimate> estimate(const Call& call) const = 0;
};

// The operator's own choice for a resolved problem.
inline Result<std::unique_ptr<Work>> make_work(const Resolved& resolved, const DeviceFacts& facts) {
  return resolved.problem.op->make(resolved, facts);
}

// The bytes 256-byte aligned sections take one after another.
class Sections {
 public:
  // Gives the offset of `bytes` more; fails with INVALID_ARGUMENT where the sum passes 2^63.
  Status add(std::initializer_list<int64_t> factors, int64_t* offset, int64_t* bytes = nullptr);
  size_t total() const { return static_cast<size_t>(total_); }

 private:
  int64_t total_ = 0;
};

}  // namespace lathe
