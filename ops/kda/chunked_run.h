// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements kda behind the plan: the launches of a single rank, and those of a rank among several.
#pragma once

#include <algorithm>

#include "collective/exchange.h"
#include "collective/plans/kda_states.h"
#include "ops/device_table.h"
#include "ops/group.h"
#include "ops/kda/params.h"
#include "ops/tensors.h"

namespace lathe {

// Holds what a plan made of a shard: which rank exchanges which states, and the lengths of the
// rank's part on the device.
struct KdaShardState final : ShardState {
  template <typename Offset>
  Status upload(const Device& device) {
    const std::vector<Offset> offsets(plan.cu_seqlens.begin(), plan.cu_seqlens.end());
    LATHE_ASSIGN(table, DeviceTable::upload(device, std::as_bytes(std::span(offsets))));
    return {};
  }

  DeviceTable table;  // cu_seqlens of the part, as the kernels read them
  KdaStatesPlan plan;
  KdaMessages messages;
  int64_t sequences = 0;  // of the whole axis; fixed lengths: not told
  // Each run fills these without allocating. A group, and so a plan and its shards, runs one call
  // at a time.
  mutable std::vector<Transfer> sends, receives;
};

inline const KdaShardState& state_of(const Call& call) {
  return *static_cast<const KdaShardState*>(call.shard_state);
}

// Holds what follows from the shapes of a call.
struct KdaPlan {
  KdaChunkedShape shape;
  KdaLaunch launch;
  KdaWorkspace workspace;
  KdaRankWorkspace ranks;  // behind it; of one rank without bytes of its own

  int64_t total() const { return std::max(workspace.total, ranks.total); }
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
  Status run_segments(const KdaCall& of) const;
  Status run_merge(const KdaCall& of) const;
  Status run_forward(const KdaCall& of) const;
  Status run_backward(const KdaCall& of) const;

  // A rank among several uses these functions: part_run.cpp, ranks.cpp.
  Status check_part(const Call& call) const;
  KdaChunkedShape part_shape(const Call& call) const;
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
