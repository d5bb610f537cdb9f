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
class DispatchShardState final : public ShardState {
 public:
  static MadeShardState make(const Device& device, const lathe_shard& shard, DispatchPlan plan,
                             int tensors);

  DispatchPlan plan;
  int64_t queries = 0, keys = 0;  // that arrive here, or stay
  RowRoute queries_there, queries_back, keys_there, gradients;
  DeviceTable ranges, documents, sum_first, sum_terms;
  RankCopies shares;  // of dsinks: every rank's to all others, in rows by rank
  // These vectors hold the messages of one hop. A group runs one call at a time.
  mutable std::vector<Transfer> sends, receives;
};

// Holds offsets in the workspace. A section that a call does not use has no bytes.
struct DispatchTensorOffsets {
  bool direct = false;   // the caller's rows are compact: they are sent, or arrive, where they lie
  int64_t home = 0;      // else compact rows of the rank's own tokens
  int64_t sent = 0;      // packed: in the order of the messages
  int64_t received = 0;  // packed; of gradients of keys: the slots
  int64_t far = 0;       // [arrived tokens, batch, heads, width]
  int64_t dense = 0;     // of rows: [batch, heads, arrived tokens]
};

struct DispatchOffsets {
  const DispatchShardState* state = nullptr;
  int64_t batch = 1, heads = 0, kv_heads = 0;
  std::array<DispatchTensorOffsets, attention::count> tensors;
  int64_t out = 0, delta = 0;          // float32, arrived rows
  int64_t dq = 0, dk = 0, dv = 0;      // float32
  int64_t dsinks = 0, dsinks_sum = 0;  // of each rank, and of all
  int64_t inner = 0, inner_bytes = 0;
  int64_t bytes = 0;

  int64_t total() const { return bytes; }
  // Returns the padded size of a rank's dsinks, because a sum reads four at a time.
  int64_t padded_heads() const { return (heads + 3) / 4 * 4; }
};

class AttentionDispatch final : public PlannedExecutor<AttentionDispatch, DispatchOffsets> {
 public:
  AttentionDispatch(const lathe_problem& problem, const AttentionRequest& request, Group* group);
  // Tells the planner the sizes and costs of the problem.
  Status plan_with_heads();
  // Chooses the kernels of the steps.
  Status make_steps(const DeviceFacts& facts);

  MadeShardState prepare(const lathe_shard& shard) const override;
  Result<DispatchOffsets> plan(const Call& call) const;
  Status launch(const Call& call, const DispatchOffsets& offsets) const;
  Result<Estimate> estimate_plan(const Call& call, const DispatchOffsets& offsets) const;

 private:
  friend class DispatchRun;
  bool packed() const { return request_.problem.packed; }
  bool rounds() const { return request_.problem.element != Dtype::f32; }
  bool forward() const { return request_.problem.forward; }
  void lay_out(const Call& call, const Traveller& each, DispatchOffsets* offsets,
               WorkspaceLayout* layout) const;
  void lay_out_step(const Call& call, DispatchOffsets* offsets, WorkspaceLayout* layout) const;

  bool names_documents() const { return packed() && !request_.problem.mods.empty(); }
  // These functions build the calls of the steps.
  TokenRows arrived(const Call& call, const DispatchOffsets& offsets, int64_t offset, bool keys,
                    int64_t width) const;
  BlockInputs inputs(const Call& call, const DispatchOffsets& offsets) const;
  Call inner_call(const Call& call, const DispatchOffsets& offsets) const;
  Call step_call(const Call& call, const DispatchOffsets& offsets) const;
  Call merge_call(const Call& call, const DispatchOffsets& offsets) const;
  Call delta_call(const Call& call, const DispatchOffsets& offsets) const;
  Call gradient_call(const Call& call, const DispatchOffsets& offsets) const;
  TokenRows step_out(const Call& call, const DispatchOffsets& offsets) const {
    const int64_t offset = rounds() ? offsets.out : offsets.tensors[attention::out].far;
    return arrived(call, offsets, offset, false, request_.problem.value_dim);
  }
  // Calls `f` for each existing step and its call, in the order in which they run.
  template <typename F>
  Status for_steps(const Call& call, const DispatchOffsets& offsets, F f) const;

  AttentionRequest request_;
  Group* group_;
  bool reduces_, narrow_;
  DispatchRules rules_;
  std::vector<Traveller> tensors_;
  std::vector<Traveller> key_gradients_;  // dk and dv, as far as they are asked for
  AttentionSteps steps_;
  RowKernels kernels_ = RowKernels::make();
  // These kernels round float32, add up gradients of keys, and add up the ranks' dsinks.
  KernelSlot round_, add_keys_, add_sinks_;
};

template <typename F>
Status AttentionDispatch::for_steps(const Call& call, const DispatchOffsets& offsets, F f) const {
  if (steps_.first) LATHE_TRY(f(steps_.first->executor(), step_call(call, offsets)));
  if (steps_.finish) LATHE_TRY(f(steps_.finish->executor(), merge_call(call, offsets)));
  if (steps_.delta) LATHE_TRY(f(steps_.delta->executor(), delta_call(call, offsets)));
  if (!steps_.gradients_next) return {};
  return f(steps_.gradients_next->executor(), gradient_call(call, offsets));
}

// Makes the executor for method LATHE_DISPATCH on a group of several ranks.
MadeExecutor make_attention_dispatch(const lathe_problem& problem, const AttentionRequest& request,
                                     const DeviceFacts& facts, Group* group);

}  // namespace lathe
