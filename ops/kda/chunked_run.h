// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements kda behind the plan: the launches of a single rank.
#pragma once

#include "ops/executor.h"
#include "ops/kda/request.h"
#include "templates/params/kda_chunked.h"

namespace lathe {

// Says where one rank among several stands in the whole. The carried states are in the workspace.
// In a call on one rank nothing is set.
struct KdaRankShard {
  bool ranks = false;
  int64_t first = 0;                 // global number of local sequence 0
  const void* cu_seqlens = nullptr;  // of the local sequences, if packed
  KdaCarry carry = {};
};

// Holds what follows from the shapes of a call.
struct KdaPlan {
  KdaChunkedShape shape;
  KdaLaunch launch;
  KdaWorkspace workspace;

  int64_t total() const { return workspace.total; }
};

// Holds a call with what follows from its shapes, and where its rank stands.
struct KdaCall {
  const Call& call;
  const KdaPlan& plan;
  KdaRankShard shard = {};
};

class KdaExecutor final : public PlannedExecutor<KdaExecutor, KdaPlan> {
 public:
  KdaExecutor(const KdaRequest& request, const DeviceFacts& facts, KdaChunkedKernels kernels);

  Result<KdaPlan> plan(const Call& call) const { return plan(call, call.extents[Dim::N]); }
  Status launch(const Call& call, const KdaPlan& plan) const;
  Result<Estimate> estimate_plan(const Call& call, const KdaPlan& plan) const;

  // A rank among several runs these parts. `sequences`: those that it holds tokens of.
  Result<KdaPlan> plan(const Call& call, int64_t sequences) const;
  KdaSummaryParams summary_params(const KdaCall& of, const KdaSummary& summary) const;
  // Runs the walks, and before them the chain of the segments.
  Status run_walks(const KdaCall& of) const;

  const KdaRequest& request() const { return request_; }
  const KdaProblem& problem() const { return request_.problem; }
  const KdaChunkedKernels& kernels() const { return kernels_; }

 private:
  KdaChunkedShape shape(const Call& call, int64_t sequences) const;
  // Checks extents that a problem leaves open to its calls, and returns the blocks of the launches.
  Result<KdaLaunch> check(const Call& call, const KdaChunkedShape& shape) const;
  // Returns parameters of a kernel with all that the structs of several kernels have.
  template <typename Params>
  Params params_of(const KdaCall& of) const;
  KdaInputs inputs_of(const KdaCall& of) const;
  KdaPool pool_of(const KdaCall& of) const;
  Status run_backward(const KdaCall& of) const;

  KdaRequest request_;
  DeviceFacts facts_;
  KdaChunkedKernels kernels_;
};

}  // namespace lathe
