// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs flash_attention over ranks by dispatch. Queries and keys go to the ranks that the balanced
// plan names, one block step computes there over whole contexts, and results go home.
#pragma once

#include "collective/group.h"
#include "collective/plans/dispatch_plan.h"
#include "ops/attention/ranks/steps.h"
#include "ops/attention/ranks/two_hops.h"

namespace lathe {

// Holds what follows from a shard's lengths.
class DispatchShardState final : public TwoHopState {
 public:
  static MadeShardState make(const Device& device, const lathe_shard& shard, DispatchPlan plan,
                             size_t tensors);

  DispatchPlan plan;
  int64_t queries = 0, keys = 0;  // that arrive here, or stay
  RowRoute queries_out, queries_home, keys_out, gradients;
  DeviceTable ranges, documents, sum_first, sum_terms;
};

// The program: one step over whole contexts, and what surrounds it.
class DispatchAttention : public Executor {
 public:
  DispatchAttention(const lathe_problem& problem, const AttentionRequest& its_request,
                    Group* its_group);
  // Tells the planner the sizes and costs of the problem.
  Status plan_with_heads();
  // Chooses the kernels of the steps.
  Status make_steps(const DeviceFacts& facts);

  Status check(const Call& call) const;
  MadeShardState prepare(const lathe_shard& shard) const override;
  bool rounds() const { return request.problem.element != Dtype::f32; }

  const AttentionRequest request;
  Group* const group;
  const bool reduces;  // dsinks are summed over the ranks
  const bool narrow;   // gradients of keys travel in the keys' type, which is not float32
  DispatchRules rules;
  std::vector<HopTensor> tensors;
  AttentionSteps steps;
  RowKernels row_kernels = RowKernels::make();
  // These kernels round float32, add up gradients of keys, and add up the ranks' dsinks.
  KernelSlot round, add_keys, add_sinks;
};

// Holds the sections beside those of the tensors that travel; float32. Null: the call has none.
struct DispatchSections {
  char* out = nullptr;                            // [queries, B, H, DV]: the partial result
  char* delta = nullptr;                          // [B, H, queries]
  char* dq = nullptr;                             // [queries, B, H, D]
  char *dk = nullptr, *dv = nullptr;              // [keys, B, HK, D or DV]
  char *dsinks = nullptr, *dsinks_sum = nullptr;  // [world, padded H], and [padded H]
};

// Runs one call. A backward in the same call needs no hop of its own: its upstream gradients go out
// with the queries. A copy that reads another copy's output is a separate launch. Hops wait for the
// stream, and the stream waits for hops.
class DispatchRun final : public TwoHopRun {
 public:
  DispatchRun(const DispatchAttention& program, const Call& call);
  Status lay_out();
  Result<Estimate> estimate() const;

 private:
  Status pack_inputs() const override;
  Status compute() const override;
  Status pack_results() const override;
  Status unpack_results() const override;

  const AttentionProblem& problem() const { return program_.request.problem; }
  const AttentionGradients& wanted() const { return program_.request.gradients; }
  // Returns the padded size of a rank's dsinks, because a sum reads four at a time.
  int64_t padded_heads() const { return (heads_ + 3) / 4 * 4; }
  char* own_dsinks() const {
    return sections_.dsinks ? sections_.dsinks + rank_ * padded_heads() * 4 : nullptr;
  }

  void lay_out(const HopTensor& each);
  // Returns rows on this rank, which computes with them: token after token, each with all rows of
  // the batch.
  TokenRows away(char* data, bool keys, int64_t width) const;
  StepTensors tensors() const;
  // Calls f(step, its call) for each existing step, in the order in which they run.
  template <typename F>
  Status for_steps(F f) const;

  Status round_rows(const char* from, const TensorHop& to) const;
  Status round_gradients() const;
  Status add_key_gradients() const;
  Status add_dsinks() const;

  const DispatchAttention& program_;
  const DispatchShardState& state_;
  const int rank_;
  const int64_t batch_, heads_, kv_heads_;
  DispatchSections sections_;
};

// Makes the executor for method LATHE_DISPATCH on a group of several ranks.
MadeExecutor make_attention_dispatch(const lathe_problem& problem, const AttentionRequest& request,
                                     const DeviceFacts& facts, Group* group);

}  // namespace lathe
