// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The plan of sparse_flash_attention: which kernels it holds, what the shapes of a call decide, the
// launches.
#include "ops/sparse/run.h"

#include <algorithm>

#include "codegen/base/invalid.h"
#include "ops/sparse/ranks.h"
#include "ops/sparse/work.h"

namespace lathe {
namespace {

Grid grid(int64_t blocks) { return Grid{static_cast<unsigned>(blocks), 1, 1}; }

Status too_many_blocks(const SparseShape& shape, int64_t splits) {
  return Status(Code::unsupported,
                text("q of ", shape.rows(), " rows and ", shape.heads, " heads, with lists in ",
                     splits, " parts and ", shape.sequences * shape.seq_k,
                     " keys, needs more than ", kMaxExtent, " blocks; split the rows"));
}

}  // namespace

SparseWork::SparseWork(const SparseRequest& request, const SparseKernels& kernels,
                       const std::optional<SparseBackwardKernels>& backward,
                       const DeviceFacts& facts)
    : request_(request),
      kernels_(kernels),
      backward_(backward),
      multiprocessors_(facts.multiprocessors),
      cached_(sparse_cached_bytes(facts)) {
  const auto add = [this](const std::optional<KernelSpec>& spec) {
    if (spec) specs_.push_back(*spec);
  };
  add(kernels_.forward);
  add(kernels_.combine);
  if (!backward_) return;
  specs_.push_back(backward_->prepare);
  add(backward_->main);
  add(backward_->ranges);
  add(backward_->fill);
  add(backward_->gather);
  specs_.push_back(backward_->finish);
}

void SparseWork::bind(const std::vector<PlanKernel>& kernels) {
  size_t next = 0;
  const auto take = [&](bool there) { return there ? kernels[next++].loaded : nullptr; };
  loaded_.forward = take(kernels_.forward.has_value());
  loaded_.combine = take(kernels_.combine.has_value());
  if (!backward_) return;
  loaded_.prepare = take(true);
  loaded_.main = take(backward_->main.has_value());
  loaded_.ranges = take(backward_->ranges.has_value());
  loaded_.fill = take(backward_->fill.has_value());
  loaded_.gather = take(backward_->gather.has_value());
  loaded_.finish = take(true);
}

SparseShape SparseWork::shape(const Call& call) const {
  const Extents& e = call.extents;
  SparseShape shape;
  shape.sequences = request_.tokens ? 1 : e[Letter::B];
  shape.heads = e[Letter::H], shape.kv_heads = e[Letter::HK];
  shape.seq_q = e[request_.tokens ? Letter::Tq : Letter::Sq];
  shape.seq_k = e[request_.tokens ? Letter::Tk : Letter::Sk];
  shape.topk = e[Letter::topk], shape.block = int64_t{1} << request_.block_shift;
  return shape;
}

Status SparseWork::plan_forward(Launch* launch) const {
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

Status SparseWork::plan_backward(Launch* launch) const {
  if (!backward_) return {};
  LATHE_ASSIGN(launch->backward,
               sparse_backward_launch(problem(), *backward_, launch->shape, request_.gradients));
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

Result<SparseWork::Launch> SparseWork::plan_launch(const Call& call) const {
  LATHE_TRY(check_sparse_extents(call.extents, request_.block_shift));
  Launch out;
  out.shape = shape(call);
  // So that no product of rows, heads, parts and key heads overflows.
  LATHE_TRY(checked_product("q", {out.shape.sequences, out.shape.seq_q,
                                  std::max<int64_t>(out.shape.heads, 1), kMostSparseSplits, 8}));
  LATHE_TRY(plan_forward(&out));
  LATHE_TRY(plan_backward(&out));
  return out;
}

Result<size_t> SparseWork::workspace_bytes(const Call& call) const {
  LATHE_ASSIGN(const Launch launch, plan_launch(call));
  return static_cast<size_t>(launch.workspace());
}

Status SparseWork::run_forward(const Call& call, const Launch& launch,
                               const SparsePlaces* places) const {
  if (!launch.forward) return {};
  const SparseCall of{request_, launch.shape, call, places};
  const SparseForwardParams p =
      sparse_forward_params(of, launch.head_tiles, launch.splits, launch.partials);
  LATHE_TRY(loaded_.forward->launch(grid(launch.blocks), &p, call.stream));
  if (launch.splits == 1) return {};
  const SparseCombineParams combine = sparse_combine_params(of, p);
  return loaded_.combine->launch(grid(sparse_combine_blocks(*kernels_.combine, launch.shape)),
                                 &combine, call.stream);
}

// The main kernel over a chunk of rows, and what joins its parts in their order.
Status SparseWork::run_rows(const SparseBackwardCall& of, int64_t first, CUstream stream) const {
  const SparseBackwardLaunch& launch = of.launch;
  const int64_t rows = std::min(launch.chunk, launch.rows - first);
  if (rows * launch.row_blocks == 0) return {};
  const SparseBackwardParams p = sparse_backward_params(of, first);
  LATHE_TRY(loaded_.main->launch(grid(rows * launch.row_blocks), &p, stream));
  if (launch.ranges_blocks == 0) return {};
  const SparseBackwardGatherParams join = sparse_gather_params(of, p, rows);
  LATHE_TRY(loaded_.ranges->launch(grid(launch.ranges_blocks), &join, stream));
  LATHE_TRY(loaded_.fill->launch(grid(rows * of.of.shape.kv_heads), &join, stream));
  return loaded_.gather->launch(grid(launch.gather_blocks), &join, stream);
}

Status SparseWork::run_prepare(const Call& call, const Launch& launch) const {
  if (launch.backward.prepare_blocks == 0) return {};
  const SparseCall of{request_, launch.shape, call};
  const SparseBackwardPrepareParams p =
      sparse_prepare_params({of, launch.backward, call.workspace});
  return loaded_.prepare->launch(grid(launch.backward.prepare_blocks), &p, call.stream);
}

Status SparseWork::run_backward(const Call& call, const Launch& launch,
                                const SparsePlaces* places) const {
  const SparseCall of{request_, launch.shape, call, places};
  const SparseBackwardCall backward{of, launch.backward, call.workspace};
  for (int64_t chunk = 0; loaded_.main && chunk < launch.backward.chunks; ++chunk) {
    LATHE_TRY(run_rows(backward, chunk * launch.backward.chunk, call.stream));
  }
  return {};
}

Status SparseWork::run_finish(const SparseBackwardFinishParams& p, CUstream stream) const {
  const int64_t blocks = int64_t{p.dk_blocks} + p.dv_blocks + p.dsinks_blocks;
  return blocks == 0 ? Status() : loaded_.finish->launch(grid(blocks), &p, stream);
}

Status SparseWork::run(const Call& call) const {
  LATHE_ASSIGN(const Launch launch, plan_launch(call));
  LATHE_TRY(call.check_workspace(launch.workspace()));
  LATHE_TRY(run_forward(call, launch, nullptr));
  if (!backward_) return {};
  LATHE_TRY(run_prepare(call, launch));
  LATHE_TRY(run_backward(call, launch, nullptr));
  const SparseCall of{request_, launch.shape, call};
  return run_finish(sparse_finish_params({of, launch.backward, call.workspace}), call.stream);
}

Result<Estimate> SparseWork::estimate(const Call& call) const {
  LATHE_ASSIGN(const Launch launch, plan_launch(call));
  return estimate(launch);
}

Result<Estimate> SparseWork::estimate(const Launch& launch) const {
  Estimate out;
  const auto add = [&out](const Cost& cost) {
    out.cost.minimum_bytes += cost.minimum_bytes;
    out.cost.bytes += cost.bytes;
    out.cost.flops += cost.flops;
    out.cost.tensor_ops += cost.tensor_ops;
  };
  if (launch.forward) {
    out.launches = launch.splits > 1 ? 2 : 1;
    add(sparse_forward_cost(problem(), *kernels_.forward, launch.shape, launch.splits, cached_));
  }
  if (!backward_) return out;
  const SparseBackwardLaunch& backward = launch.backward;
  out.launches += (backward.prepare_blocks > 0) + (backward.finish_blocks() > 0);
  if (backward_->main && backward.row_blocks > 0) {
    out.launches += static_cast<uint64_t>(backward.chunks * (backward.ranges_blocks > 0 ? 4 : 1));
  }
  add(sparse_backward_cost(problem(), *backward_, launch.shape, backward, cached_));
  return out;
}

Result<std::unique_ptr<Work>> make_sparse(const SparseRequest& request, const DeviceFacts& facts,
                                          const SparseGroup& ranks) {
  LATHE_ASSIGN(const SparseKernels kernels, sparse_kernels(request.problem, facts));
  std::optional<SparseBackwardKernels> backward;
  if (request.problem.backward || request.problem.dsinks) {
    LATHE_ASSIGN(backward, sparse_backward_kernels(request.problem, facts));
  }
  auto work = std::make_unique<SparseWork>(request, kernels, backward, facts);
  // One rank holds all keys.
  if (!ranks.group || ranks.group->world() == 1) return std::unique_ptr<Work>(std::move(work));
  return std::unique_ptr<Work>(std::make_unique<SparseOverRanks>(std::move(work), ranks));
}

}  // namespace lathe
