// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements the plan of sparse_flash_attention: which kernels it holds, what the shapes of a call
// decide, the launches.
#include "ops/sparse/run.h"

#include <algorithm>

#include "codegen/base/invalid.h"
#include "ops/sparse/params.h"
#include "ops/sparse/ranks.h"

namespace lathe {
namespace {

Status too_many_blocks(const SparseShape& shape, int64_t splits) {
  return unsupported(text("q of ", shape.rows(), " rows and ", shape.heads,
                          " heads, with lists in ", splits, " parts and ",
                          shape.sequences * shape.seq_k, " keys, needs more than ", kMaxExtent,
                          " blocks; split the rows"));
}

}  // namespace

SparseExecutor::SparseExecutor(const SparseRequest& request, const SparseKernels& kernels,
                               const SparseBackwardKernels& backward, const DeviceFacts& facts)
    : request_(request),
      kernels_(kernels),
      backward_(backward),
      multiprocessors_(facts.multiprocessors),
      cached_(sparse_cached_bytes(facts)) {
  list({&kernels_.forward, &kernels_.combine, &backward_.prepare, &backward_.main,
        &backward_.ranges, &backward_.fill, &backward_.gather, &backward_.finish});
}

SparseShape SparseExecutor::shape(const Call& call) const {
  const Extents& e = call.extents;
  SparseShape shape;
  shape.sequences = request_.tokens ? 1 : e[Dim::B];
  shape.heads = e[Dim::H], shape.kv_heads = e[Dim::HK];
  shape.seq_q = e[request_.tokens ? Dim::Tq : Dim::Sq];
  shape.seq_k = e[request_.tokens ? Dim::Tk : Dim::Sk];
  shape.topk = e[Dim::topk], shape.block = int64_t{1} << request_.block_shift;
  return shape;
}

Status SparseExecutor::plan_forward(SparsePlan* launch) const {
  const SparseShape& shape = launch->shape;
  launch->forward = problem().forward && shape.rows() > 0 && shape.heads > 0;
  if (!launch->forward) return {};
  launch->splits =
      sparse_splits(problem(), *kernels_.forward, shape, multiprocessors_, request_.splits);
  const int64_t splits = launch->splits;
  // Looked up once: a launch has no time for the names of a spec's constants.
  launch->head_tiles = sparse_head_tiles(*kernels_.forward, shape);
  launch->blocks = shape.rows() * shape.kv_heads * launch->head_tiles * splits;
  const int64_t joined = splits > 1 ? sparse_combine_blocks(*kernels_.combine, shape) : 0;
  if (std::max(launch->blocks, joined) > kMaxExtent) return too_many_blocks(shape, splits);
  if (splits == 1) return {};
  LATHE_TRY(checked_product("the workspace",
                            {splits, shape.rows(), shape.heads, problem().value_dim + 2, 4}));
  launch->partials = sparse_partials(problem(), shape, splits);
  return {};
}

Status SparseExecutor::plan_backward(SparsePlan* launch) const {
  if (!has_backward()) return {};
  LATHE_ASSIGN(launch->backward,
               sparse_backward_launch(problem(), backward_, launch->shape, request_.gradients));
  const SparseBackwardLaunch& out = launch->backward;
  for (const int64_t count :
       {out.rows, out.prepare_blocks, out.ranges_blocks, out.gather_blocks, out.finish_blocks()}) {
    if (count > kMaxExtent) return too_many_blocks(launch->shape, 1);
  }
  if (out.row_blocks > 0 && out.chunk > kMaxExtent / out.row_blocks) {
    return too_many_blocks(launch->shape, 1);
  }
  return {};
}

Result<SparsePlan> SparseExecutor::plan(const Call& call) const {
  LATHE_TRY(check_sparse_extents(call.extents, request_.block_shift));
  SparsePlan out;
  out.shape = shape(call);
  // So that no product of rows, heads, parts and key heads overflows.
  LATHE_TRY(checked_product("q", {out.shape.sequences, out.shape.seq_q,
                                  std::max<int64_t>(out.shape.heads, 1), kMostSparseSplits, 8}));
  LATHE_TRY(plan_forward(&out));
  LATHE_TRY(plan_backward(&out));
  return out;
}

Status SparseExecutor::run_forward(const Call& call, const SparsePlan& launch,
                                   const SparsePlaces* places) const {
  if (!launch.forward) return {};
  const SparseCall of{request_, launch.shape, call, places};
  const SparseForwardParams p =
      sparse_forward_params(of, launch.head_tiles, launch.splits, launch.partials);
  LATHE_TRY(kernels_.forward.launch(launch.blocks, &p, call.stream));
  if (launch.splits == 1) return {};
  const SparseCombineParams combine = sparse_combine_params(of, p);
  return kernels_.combine.launch(sparse_combine_blocks(*kernels_.combine, launch.shape), &combine,
                                 call.stream);
}

// Runs the main kernel over a chunk of rows, and the kernels that join its results in the order of
// the rows.
Status SparseExecutor::run_rows(const SparseBackwardCall& of, int64_t first,
                                CUstream stream) const {
  const SparseBackwardLaunch& launch = of.launch;
  const int64_t rows = std::min(launch.chunk, launch.rows - first);
  if (rows * launch.row_blocks == 0) return {};
  const SparseBackwardParams p = sparse_backward_params(of, first);
  LATHE_TRY(backward_.main.launch(rows * launch.row_blocks, &p, stream));
  if (launch.ranges_blocks == 0) return {};
  const SparseBackwardGatherParams join = sparse_gather_params(of, p, rows);
  LATHE_TRY(backward_.ranges.launch(launch.ranges_blocks, &join, stream));
  LATHE_TRY(backward_.fill.launch(rows * of.of.shape.kv_heads, &join, stream));
  return backward_.gather.launch(launch.gather_blocks, &join, stream);
}

Status SparseExecutor::run_prepare(const Call& call, const SparsePlan& launch) const {
  if (launch.backward.prepare_blocks == 0) return {};
  const SparseCall of{request_, launch.shape, call};
  const SparseBackwardPrepareParams p =
      sparse_prepare_params({of, launch.backward, call.workspace});
  return backward_.prepare.launch(launch.backward.prepare_blocks, &p, call.stream);
}

Status SparseExecutor::run_backward(const Call& call, const SparsePlan& launch,
                                    const SparsePlaces* places) const {
  const SparseCall of{request_, launch.shape, call, places};
  const SparseBackwardCall backward{of, launch.backward, call.workspace};
  for (int64_t chunk = 0; backward_.main && chunk < launch.backward.chunks; ++chunk) {
    LATHE_TRY(run_rows(backward, chunk * launch.backward.chunk, call.stream));
  }
  return {};
}

Status SparseExecutor::run_finish(const SparseBackwardFinishParams& p, CUstream stream) const {
  const int64_t blocks = int64_t{p.dk_blocks} + p.dv_blocks + p.dsinks_blocks;
  return blocks == 0 ? Status() : backward_.finish.launch(blocks, &p, stream);
}

Status SparseExecutor::launch(const Call& call, const SparsePlan& launch) const {
  LATHE_TRY(run_forward(call, launch, nullptr));
  if (!has_backward()) return {};
  LATHE_TRY(run_prepare(call, launch));
  LATHE_TRY(run_backward(call, launch, nullptr));
  const SparseCall of{request_, launch.shape, call};
  return run_finish(sparse_finish_params({of, launch.backward, call.workspace}), call.stream);
}

Result<Estimate> SparseExecutor::estimate_plan(const Call&, const SparsePlan& launch) const {
  Estimate out;
  const auto add = [&out](const Cost& cost) { out.add({0, cost}); };
  if (launch.forward) {
    out.launches = launch.splits > 1 ? 2 : 1;
    add(sparse_forward_cost(problem(), *kernels_.forward, launch.shape, launch.splits, cached_));
  }
  if (!has_backward()) return out;
  const SparseBackwardLaunch& backward = launch.backward;
  out.launches += (backward.prepare_blocks > 0) + (backward.finish_blocks() > 0);
  if (backward_.main && backward.row_blocks > 0) {
    out.launches += static_cast<uint64_t>(backward.chunks * (backward.ranges_blocks > 0 ? 4 : 1));
  }
  add(sparse_backward_cost(problem(), backward_, launch.shape, backward, cached_));
  return out;
}

MadeExecutor make_sparse(const Resolved& resolved, const DeviceFacts& facts) {
  LATHE_ASSIGN(const SparseRequest request, sparse_request(resolved));
  LATHE_ASSIGN(const SparseGroup ranks, sparse_group(resolved.problem));
  LATHE_ASSIGN(const SparseKernels kernels, sparse_kernels(request.problem, facts));
  SparseBackwardKernels backward;
  if (request.problem.backward || request.problem.dsinks) {
    LATHE_ASSIGN(backward, sparse_backward_kernels(request.problem, facts));
  }
  auto own = std::make_unique<SparseExecutor>(request, kernels, backward, facts);
  // One rank holds all keys.
  if (!ranks.group || ranks.group->world() == 1) return std::unique_ptr<Executor>(std::move(own));
  return executor_of<SparseOverRanks>(std::move(own), ranks);
}

}  // namespace lathe
