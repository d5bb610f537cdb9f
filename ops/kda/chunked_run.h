// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements kda behind the plan: the launches of a single rank, and those of a rank among several.
#pragma once

#include <optional>

#include "collective/plans/kda_states.h"
#include "ops/device_table.h"
#include "ops/kda/request.h"
#include "ops/rank_program.h"
#include "templates/params/kda_chunked.h"

namespace lathe {

// Holds what a plan made of a shard: which rank exchanges which states, and the lengths of the
// rank's part on the device.
struct KdaShardState final : ShardState {
  DeviceTable table;  // cu_seqlens of the part, as the kernels read them
  KdaStatesPlan plan;
  KdaMessages messages;
  int64_t sequences = 0;          // of the whole axis; fixed lengths: not told
  mutable HopMessages transfers;  // each run fills these
};

inline const KdaShardState& state_of(const Call& call) {
  return *static_cast<const KdaShardState*>(call.shard_state);
}

// Says where one rank among several stands in the whole. The carried states are in the workspace.
// In a call on one rank nothing is set.
struct KdaPartOf {
  bool ranks = false;
  int64_t first = 0;                 // global number of local sequence 0
  const void* cu_seqlens = nullptr;  // of the local sequences, if packed
  KdaCarry carry = {};
};

// Lays out the data that ranks exchange, behind the workspace of one rank. `rows` is that of the
// batch, or 1 if packed.
struct KdaRankWorkspace {
  int64_t end = 0, map = 0, grad = 0;     // of this part: float32 [rows, HV, V or K, K]
  int64_t ends = 0, end_maps = 0;         // of those before, one after another
  int64_t grads = 0, grad_maps = 0;       // of those behind
  int64_t total = 0;                      // with one rank's
  size_t state_bytes = 0, map_bytes = 0;  // of a message
};

// Holds what follows from the shapes of a call.
struct KdaPlan {
  KdaChunkedShape shape;
  KdaLaunch launch;
  KdaWorkspace workspace;
  std::optional<KdaRankWorkspace> ranks;  // behind it, of a rank among several

  int64_t total() const { return ranks ? ranks->total : workspace.total; }
};

// Holds a call with what follows from its shapes, and where its rank stands.
struct KdaCall {
  const Call& call;
  const KdaPlan& plan;
  KdaPartOf part = {};
};

class KdaExecutor final : public PlannedExecutor<KdaExecutor, KdaPlan> {
 public:
  // `group`: null on one rank. `reduce`: gradients of A_log and dt_bias are summed over it.
  KdaExecutor(const KdaRequest& request, const DeviceFacts& facts, KdaChunkedKernels kernels,
              Group* group, bool reduce);

  MadeShardState prepare(const lathe_shard& shard) const override;
  Result<KdaPlan> plan(const Call& call) const;
  Status launch(const Call& call, const KdaPlan& plan) const;
  Result<Estimate> estimate_plan(const Call& call, const KdaPlan& plan) const;

 private:
  friend struct ShardedKda;

  const KdaProblem& problem() const { return request_.problem; }
  KdaChunkedShape shape(const Call& call) const;
  // Checks extents that a problem leaves open to its calls, and returns the blocks of the launches.
  Result<KdaLaunch> check(const Call& call, const KdaChunkedShape& shape) const;
  // Returns parameters of a kernel with all that the structs of several kernels have.
  template <typename Params>
  Params params_of(const KdaCall& of) const;
  KdaInputs inputs_of(const KdaCall& of) const;
  KdaSummaryParams summary_params(const KdaCall& of) const;
  // Runs the walks, and before them the chain of the segments.
  Status run_walks(const KdaCall& of) const;
  Status run_backward(const KdaCall& of) const;

  // A rank among several uses these functions: ops/kda/ranks.cpp.
  Result<KdaRankWorkspace> rank_workspace(const Call& call, const KdaPlan& plan) const;
  Status run_sharded(const Call& call, const KdaPlan& plan) const;
  Status reduce_gradients(const Call& call) const;
  void add_exchange(const Call& call, const KdaChunkedShape& shape, Estimate* out) const;

  const KernelSpec& walk() const { return kernels_.forward ? *kernels_.forward : *kernels_.scan; }

  KdaRequest request_;
  DeviceFacts facts_;
  KdaChunkedKernels kernels_;
  Group* group_;
  bool reduce_;
};

}  // namespace lathe
