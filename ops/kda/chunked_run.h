// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda behind the plan: one rank's launches, and those of a rank among several.
#pragma once

#include "ops/kda/params.h"

namespace lathe {

class KdaExecutor final : public Executor {
 public:
  // `group`: null on one rank. `reduce`: gradients of A_log and dt_bias are summed over it.
  KdaExecutor(const KdaRequest& request, const DeviceFacts& facts, KdaChunkedKernels kernels,
              Group* group, bool reduce);

  Result<std::unique_ptr<const ShardState>> prepare(const lathe_shard& shard) const override;
  Result<size_t> workspace_bytes(const Call& call) const override;
  Result<Estimate> estimate(const Call& call) const override;
  Status run(const Call& call) const override;

 private:
  friend struct ShardedKda;

  const KdaProblem& problem() const { return request_.problem; }
  KdaChunkedShape shape(const Call& call) const;
  // What a problem with open extents leaves to its calls; the blocks of its launches.
  Result<KdaLaunch> check(const Call& call, const KdaChunkedShape& shape) const;
  Status run_segments(const KdaCall& of) const;
  Status run_merge(const KdaCall& of) const;
  Status run_forward(const KdaCall& of) const;
  Status run_backward(const KdaCall& of) const;

  // Of a rank among several: kda_part.cpp, kda_sharded.cpp.
  Status check_part(const Call& call) const;
  KdaChunkedShape part_shape(const Call& call) const;
  Result<KdaRankWorkspace> rank_workspace(const Call& call, const KdaChunkedShape& shape) const;
  Status run_sharded(const Call& call) const;
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
