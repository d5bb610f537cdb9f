// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements the plan of `kda`: which kernels it holds, the workspace of a call, the launches.
#include "ops/kda/chunked_run.h"

#include <algorithm>
#include <utility>

#include "codegen/base/invalid.h"
#include "ops/kda/chain.h"

namespace lathe {
namespace {

// Positions of tokens that are fetched ahead are added in 32 bits.
constexpr int64_t kMostTokens = int64_t{1} << 30;

}  // namespace

KdaExecutor::KdaExecutor(const KdaRequest& request, const DeviceFacts& facts,
                         KdaChunkedKernels kernels, Group* group, bool reduce)
    : request_(request),
      facts_(facts),
      kernels_(std::move(kernels)),
      group_(group),
      reduce_(reduce) {
  list({&kernels_.summary, &kernels_.compose, &kernels_.merge, &kernels_.forward, &kernels_.scan,
        &kernels_.backward, &kernels_.finish});
}

KdaChunkedShape KdaExecutor::shape(const Call& call) const {
  if (problem().ranks) return part_shape(call);
  const Extents& extents = call.extents;
  KdaChunkedShape out;
  out.sequences = extents[Dim::N];
  out.heads = extents[Dim::H], out.value_heads = extents[Dim::HV];
  out.tokens = extents[Dim::T];
  out.segments = kda_segments(problem(), kernels_, facts_, out, request_.segments);
  return out;
}

Result<KdaLaunch> KdaExecutor::check(const Call& call, const KdaChunkedShape& shape) const {
  if (problem().ranks) LATHE_TRY(check_part(call));
  LATHE_TRY(check_kda_extents(call.extents, problem().packed));
  LATHE_TRY(check_kda_chunks(call.extents, problem().packed, request_.chunk_size));
  if (shape.tokens > kMostTokens) {
    return unsupported(text("q has T = ", shape.tokens, "; allowed are 0 to ", kMostTokens));
  }
  if (kernels_.scan && shape.heads > 0 && shape.value_heads == 0) {
    return invalid(text("v has HV = 0 and q has H = ", shape.heads,
                        "; allowed with a backward are HV that are a multiple of H from H on"));
  }
  const KdaLaunch launch = kda_launch(problem(), kernels_, shape);
  for (const int64_t blocks : {launch.summary(), launch.merge, launch.forward, launch.scan(),
                               launch.backward, launch.finish}) {
    if (blocks <= kMaxExtent) continue;
    return unsupported(text("v of ", shape.sequences, " sequences, ", shape.value_heads,
                            " value heads and ", shape.tokens, " tokens needs more than ",
                            kMaxExtent, " blocks; split the batch"));
  }
  return launch;
}

Result<KdaPlan> KdaExecutor::plan(const Call& call) const {
  KdaPlan out;
  out.shape = shape(call);
  LATHE_ASSIGN(out.launch, check(call, out.shape));
  LATHE_ASSIGN(out.workspace, kda_workspace(problem(), out.shape, request_.saved_outside));
  if (problem().ranks) {
    LATHE_ASSIGN(out.ranks, rank_workspace(call, out));
  }
  return out;
}

// Computes the states that segments start from, for the walks of both directions.
Status KdaExecutor::run_segments(const KdaCall& of) const {
  if (of.launch.summary() > 0) {
    const KdaSummaryParams p = kda_summary_params(of, walk());
    LATHE_TRY(kernels_.summary.launch(of.launch.summary(), &p, of.call.stream));
  }
  return run_merge(of);
}

Status KdaExecutor::run_merge(const KdaCall& of) const {
  if (of.launch.merge == 0) return {};
  const KdaMergeParams p = kda_merge_params(of);
  return kernels_.merge.launch(of.launch.merge, &p, of.call.stream);
}

Status KdaExecutor::run_forward(const KdaCall& of) const {
  if (of.launch.forward == 0) return {};
  const KdaForwardParams p = kda_forward_params(of, walk());
  return kernels_.forward.launch(of.launch.forward, &p, of.call.stream);
}

Status KdaExecutor::run_backward(const KdaCall& of) const {
  const KdaLaunch& launch = of.launch;
  if (launch.scan() > 0) {
    const KdaBackwardScanParams p = kda_scan_params(of, walk());
    LATHE_TRY(kernels_.scan.launch(launch.scan(), &p, of.call.stream));
  }
  if (launch.backward > 0) {
    const KdaBackwardParams p = kda_backward_params(of, walk());
    LATHE_TRY(kernels_.backward.launch(launch.backward, &p, of.call.stream));
  }
  if (launch.finish == 0) return {};
  const KdaBackwardFinishParams p = kda_finish_params(of);
  return kernels_.finish.launch(launch.finish, &p, of.call.stream);
}

Status KdaExecutor::launch(const Call& call, const KdaPlan& plan) const {
  if (problem().ranks) return run_sharded(call, plan);
  const KdaCall of = {request_, plan.shape, plan.launch, plan.workspace, call, {}};
  LATHE_TRY(run_segments(of));
  LATHE_TRY(run_forward(of));
  return run_backward(of);
}

Result<Estimate> KdaExecutor::estimate_plan(const Call& call, const KdaPlan& plan) const {
  Estimate out;
  out.launches = static_cast<uint64_t>(plan.launch.count());
  out.cost = kda_chunked_cost(problem(), kernels_, plan.shape, request_.chunk_size);
  out.cost.chain_cycles = kda_chain_cycles(problem(), kernels_, plan.shape, facts_);
  if (problem().ranks) add_exchange(call, plan.shape, &out);
  return out;
}

namespace {

// Returns whether a call may have more than one segment: one of few and long sequences may, unless
// the problem declares otherwise.
bool may_cut(const KdaRequest& request, const KdaChunkedKernels& kernels,
             const DeviceFacts& facts) {
  KdaChunkedShape shape = request.declared;
  if (shape.sequences == kUnknown) shape.sequences = 1;
  if (shape.value_heads == kUnknown) shape.value_heads = 1;
  if (shape.tokens == kUnknown) shape.tokens = kMostTokens;
  return kda_segments(request.problem, kernels, facts, shape, request.segments) > 1;
}

}  // namespace

MadeExecutor make_kda(const Resolved& resolved, const DeviceFacts& facts) {
  const lathe_problem& problem = resolved.problem;
  Group* group = problem.group ? problem.group->group.get() : nullptr;
  LATHE_ASSIGN(KdaRequest request, kda_request(resolved));
  request.problem.ranks = group && group->world() > 1;
  if (request.problem.ranks && request.problem.warmup) {
    return invalid(
        "option warmup_segments is set and the problem has a group; allowed with one is 0: the "
        "states that ranks exchange are exact");
  }
  LATHE_ASSIGN(KdaChunkedKernels kernels, kda_chunked_kernels(request.problem, facts));
  if (request.problem.segmented && !may_cut(request, kernels, facts)) {
    request.problem.segmented = false;
    LATHE_ASSIGN(kernels, kda_chunked_kernels(request.problem, facts));
  }
  return executor_of<KdaExecutor>(request, facts, std::move(kernels),
                                  request.problem.ranks ? group : nullptr,
                                  (problem.group_flags & kReduceParameterGrads) != 0);
}

}  // namespace lathe
