// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A plan: the checked problem, its kernels, and the operator's own work behind one interface.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "api/context.h"
#include "api/group.h"
#include "api/tensors.h"
#include "codegen/kernels/launch_shape.h"
#include "codegen/problem.h"

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

// Chooses kernels; compiles nothing.
Result<std::unique_ptr<Work>> make_conv(const ConvProblem& problem, const DeviceFacts& facts,
                                        Group* group, bool reduce_parameter_grads);
Result<std::unique_ptr<Work>> make_conv_update(const ConvProblem& problem,
                                               const DeviceFacts& facts);
// Checks a whole problem. What it promises, without what a group's cut decides and each run checks.
Result<Extents> promised_by(const lathe_problem& problem);
// The operator's own choice for a whole problem.
Result<std::unique_ptr<Work>> make_work(const lathe_problem& problem, const Extents& promised,
                                        const DeviceFacts& facts);

// The bytes 256-byte aligned sections take one after another.
class Sections {
 public:
  // Gives the offset of `bytes` more; fails with INVALID_ARGUMENT where the sum passes 2^63.
  Status add(std::initializer_list<int64_t> factors, int64_t* offset, int64_t* bytes = nullptr);
  size_t total() const { return static_cast<size_t>(total_); }

 private:
  int64_t total_ = 0;
};

// Of what was declared, but for extents, and of all options.
struct PlanDigests {
  uint64_t tensors = 0, options = 0;
  uint64_t choices = 0;  // what was tuned and is shared
};
PlanDigests digests_of(const lathe_problem& problem);

}  // namespace lathe

struct lathe_plan {
  uint64_t id = 0;  // no other plan of this process ever has it
  lathe_context* context = nullptr;
  const lathe::Operator* op = nullptr;
  lathe::Extents promised;
  std::vector<lathe::Slot> slots;
  std::vector<lathe::PlanKernel> kernels;
  std::shared_ptr<lathe::Group> group;  // null: one device
  unsigned group_flags = 0;
  lathe::PlanDigests digests;  // what all ranks of a group must have alike
  std::unique_ptr<lathe::Work> work;

  mutable std::mutex mutex;
  // Guarded by mutex, by kernel: those whose PTX was asked for.
  mutable std::map<size_t, std::shared_ptr<const lathe::Entry>> whole;
};

namespace lathe {

// INVALID_ARGUMENT if all that is known of the plan's group is how many ranks it has.
Status require_ranks(const lathe_plan& plan);
// INVALID_ARGUMENT unless the shard is one of the plan's group that the operator can run on.
Status check_group_of(const lathe_plan& plan, const lathe_shard& shard);
// Checks the tensors and the shard of one call.
Status prepare_call(const lathe_plan& plan, const lathe_shard* shard, const DLTensor* const* slots,
                    Look look, Call* call);

}  // namespace lathe
