// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// An executor stands behind a plan: it has the operator's kernels and runs a checked call.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "cache/registry.h"
#include "codegen/base/invalid.h"
#include "ops/group.h"
#include "ops/kernel.h"
#include "ops/kernel_problems.h"
#include "ops/resolve.h"
#include "ops/tensors.h"
#include "ops/workspace.h"

namespace lathe {

using MadeShardState = Result<std::unique_ptr<const ShardState>>;

struct Estimate {
  uint64_t launches = 0;
  Cost cost;
  uint64_t exchanges = 0, exchange_bytes = 0;  // NCCL groups, and what this rank sends in them

  // Adds the launches and the cost of a step. Its chain of cycles is not added.
  void add(const Estimate& step);
};

// Runs the calls of a problem. Immutable once its kernels are bound: one object serves every
// thread.
class Executor {
 public:
  virtual ~Executor() = default;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Returns the specs of all kernels, in the order in which the plan lists them.
  std::vector<KernelSpec> specs() const;
  // Hands over the loaded kernels, in that order.
  void bind(const std::vector<PlanKernel>& kernels);

  // Makes the state that runs on this shard need and that follows from its lengths: once per shard,
  // off the launch path. May allocate, and communicate with the other ranks. Returns null if no
  // state is needed.
  virtual MadeShardState prepare(const lathe_shard&) const {
    return std::unique_ptr<const ShardState>();
  }
  // Returns why shards with a capacity are not prepared, if they are not. For those that are,
  // everything that runs and is sent depends on the capacity alone, and state->image() makes the
  // tables of another layout.
  virtual Status check_capacity() const {
    return unsupported(
        "the plan takes no shard with capacity_tokens: what it launches and sends depends on the "
        "layout");
  }
  virtual Result<size_t> workspace_bytes(const Call& call) const = 0;
  // Checks the workspace before it launches or sends anything. The run computes the needed size
  // itself, because a second computation would cost a sixth of a launch.
  virtual Status run(const Call& call) const = 0;
  virtual Result<Estimate> estimate(const Call& call) const = 0;

 protected:
  Executor() = default;
  // Lists kernels, in the order of the plan. The slots are members of this executor, or of one that
  // it owns. Empty slots are skipped.
  void list(const std::vector<KernelSlot*>& slots);
  void list(const Executor& step);
  size_t kernel_count() const { return slots_.size(); }

 private:
  std::vector<KernelSlot*> slots_;
};

// An executor of this kind begins each call with a plan, which follows from the call's shapes,
// after the checks that a problem leaves to its calls. Derived has
//   Result<Plan> plan(const Call&) const;
//   Status launch(const Call&, Plan&) const;
//   Result<Estimate> estimate_plan(const Call&, const Plan&) const;
// and Plan::total() says how many bytes of workspace the call needs.
template <typename Derived, typename Plan>
class PlannedExecutor : public Executor {
 public:
  Result<size_t> workspace_bytes(const Call& call) const final {
    LATHE_ASSIGN(const Plan plan, self().plan(call));
    return static_cast<size_t>(plan.total());
  }
  // The plan stays where it was made: to copy a large one costs a tenth of a launch.
  Status run(const Call& call) const final {
    Result<Plan> plan = self().plan(call);
    LATHE_TRY(plan);
    LATHE_TRY(call.check_workspace(plan->total()));
    return self().launch(call, *plan);
  }
  Result<Estimate> estimate(const Call& call) const final {
    LATHE_ASSIGN(const Plan plan, self().plan(call));
    return self().estimate_plan(call, plan);
  }

 private:
  const Derived& self() const { return static_cast<const Derived&>(*this); }
};

// Makes an executor of type T, as the table of operators returns it.
template <typename T, typename... Arguments>
MadeExecutor executor_of(Arguments&&... arguments) {
  return std::unique_ptr<Executor>(std::make_unique<T>(std::forward<Arguments>(arguments)...));
}

// Makes the operator's own choice for a resolved problem.
inline MadeExecutor make_executor(const Resolved& resolved, const DeviceFacts& facts) {
  return resolved.problem.op->make(resolved, facts);
}

}  // namespace lathe
