// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A plan: the checked problem, its kernels, and the executor of its operator.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "api/context.h"
#include "ops/executor.h"

namespace lathe {

// Checks a whole problem and returns what it promises, without what a group's cut decides and each
// run checks.
Result<Resolved> declared_by(const lathe_problem& problem);

// Digests of what was declared, but for extents, and of all options.
struct PlanDigests {
  uint64_t tensors = 0, options = 0;
  uint64_t choices = 0;  // what was tuned and is shared
};
PlanDigests digests_of(const lathe_problem& problem);

}  // namespace lathe

struct lathe_plan {
  uint64_t id = 0;  // no other plan of this process ever has it
  lathe_context* context = nullptr;
  lathe::OperatorPointer op;
  lathe::Extents declared;
  std::vector<lathe::Slot> slots;
  std::vector<lathe::PlanKernel> kernels;
  std::shared_ptr<lathe::Group> group;  // null: one device
  unsigned group_flags = 0;
  lathe::PlanDigests digests;  // what all ranks of a group must have alike
  std::unique_ptr<lathe::Executor> executor;

  mutable std::mutex mutex;
  // Guarded by mutex, by kernel: those whose code was asked for, and those whose remarks were.
  mutable std::map<size_t, std::shared_ptr<const lathe::Entry>> whole;
  mutable std::map<size_t, std::string> remarks;
};

namespace lathe {

// Returns what lathe_plan_kernel says; its texts are lent by the kernel.
lathe_kernel_info describe(const PlanKernel& kernel);
// INVALID_ARGUMENT if all that is known of the plan's group is how many ranks it has.
Status require_ranks(const lathe_plan& plan);
// INVALID_ARGUMENT unless the shard is one of the plan's group that the operator can run on.
Status check_group_of(const lathe_plan& plan, const lathe_shard& shard);
// Checks the tensors and the shard of one call.
Status prepare_call(const lathe_plan& plan, const lathe_shard* shard, const DLTensor* const* slots,
                    Checks checks, Call* call);

}  // namespace lathe
