// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs flash_attention over ranks by dispatch. Queries and keys go to the ranks that the balanced
// plan names, one block step computes there over whole contexts, and results go home.
#pragma once

#include "collective/group.h"
#include "collective/plans/dispatch_plan.h"
#include "ops/attention/ranks/steps.h"
#include "ops/attention/ranks/travel.h"

namespace lathe {

// Holds the state that follows from a shard's lengths.
class DispatchShardState final : public TravelState {
 public:
  static MadeShardState make(const Device& device, const lathe_shard& shard, DispatchPlan plan,
                             size_t tensors);

  DispatchPlan plan;
  int64_t queries = 0, keys = 0;  // that arrive here, or stay
  RowRoute queries_there, queries_back, keys_there, gradients;
  DeviceTable ranges, documents, sum_first, sum_terms;
};

class AttentionDispatch final : public RankExecutor<AttentionDispatch, class DispatchRun> {
 public:
  AttentionDispatch(const lathe_problem& problem, const AttentionRequest& request, Group* group);
  // Tells the planner the sizes and costs of the problem.
  Status plan_with_heads();
  // Chooses the kernels of the steps.
  Status make_steps(const DeviceFacts& facts);

  Status check(const Call& call) const;
  MadeShardState prepare(const lathe_shard& shard) const override;

 private:
  friend class DispatchRun;
  bool rounds() const { return request_.problem.element != Dtype::f32; }

  AttentionRequest request_;
  Group* group_;
  bool reduces_, narrow_;
  DispatchRules rules_;
  std::vector<Traveller> travellers_;
  AttentionSteps steps_;
  RowKernels kernels_ = RowKernels::make();
  // These kernels round float32, add up gradients of keys, and add up the ranks' dsinks.
  KernelSlot round_, add_keys_, add_sinks_;
};

// Runs one call: rows go out in one hop, a step computes over whole contexts, results go home in
// one hop. A backward in the same call needs no hop of its own: its upstream gradients go out with
// the queries. A copy that reads another copy's output is a separate launch. Hops wait for the
// stream, and the stream waits for hops.
class DispatchRun final : public TravelRun {
 public:
  DispatchRun(const AttentionDispatch& executor, const Call& call);
  Status lay_out();
  Status operator()();
  Result<Estimate> estimate() const;

 private:
  const AttentionProblem& problem() const { return executor_.request_.problem; }
  bool backward() const { return problem().backward; }
  // Returns the padded size of a rank's dsinks, because a sum reads four at a time.
  int64_t padded_heads() const { return (heads_ + 3) / 4 * 4; }
  char* own_dsinks() const { return dsinks_ ? dsinks_ + rank_ * padded_heads() * 4 : nullptr; }

  void lay_out(const Traveller& each);
  TokenRows arrived(char* data, bool keys, int64_t width) const;
  TokenRows arrived_values(int tensor) const {
    return arrived(ways_[tensor].far, false, problem().value_dim);
  }
  BlockInputs inputs() const;
  // Calls f(step, its call) for each existing step, in the order in which they run.
  template <typename F>
  Status for_steps(F f) const;

  Status go_out() const;
  Status compute() const;
  Status round_rows(const char* from, char* to, int64_t tokens, int64_t heads, int64_t width) const;
  Status round_gradients() const;
  Status set_out_for_home() const;
  Status come_home() const;
  Status add_key_gradients() const;
  Status add_dsinks() const;

  const AttentionDispatch& executor_;
  const DispatchShardState& state_;
  const int rank_;
  const int64_t batch_, heads_, kv_heads_;
  char *out_ = nullptr, *delta_ = nullptr;              // float32, arrived rows
  char *dq_ = nullptr, *dk_ = nullptr, *dv_ = nullptr;  // float32
  char *dsinks_ = nullptr, *dsinks_sum_ = nullptr;      // of each rank, and of all
};

// Makes the executor for method LATHE_DISPATCH on a group of several ranks.
MadeExecutor make_attention_dispatch(const lathe_problem& problem, const AttentionRequest& request,
                                     const DeviceFacts& facts, Group* group);

}  // namespace lathe
