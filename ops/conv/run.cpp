// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements the plan of causal_conv1d: kernels, workspace, parameters, and the launches of a
// single rank.
#include "ops/conv/run.h"

#include "codegen/base/invalid.h"
#include "collective/exchange.h"
#include "ops/conv/ranks.h"
#include "ops/conv/ranks_pieces.h"

namespace lathe {
namespace {

// Grids are counted in 31 bits. No block does less than 32 channels of one tile, so this refuses
// only what no device's memory holds.
Status check_blocks(const ConvShape& shape, const ConvTiling& tiling) {
  const int64_t channels = (shape.channels + 31) / 32;
  const int64_t strips = shape.batch * tiling.tiles + tiling.state_tiles;
  if (strips <= kMaxExtent && strips * channels <= kMaxExtent) return {};
  return unsupported(text("x [", shape.batch, ", ", shape.tokens, ", ", shape.channels,
                          "] needs more than ", kMaxExtent, " blocks; split the batch"));
}

ConvPart conv_part(const Call& call, int multiprocessors) {
  ConvPart part;
  const int64_t tokens = call.extents[Dim::T];
  part.length = tokens;
  part.end = tokens;
  if (call.shard) {
    const Interval interval = call.shard->layout.partition.part(call.shard->rank);
    part.length = call.shard->layout.partition.length();
    part.begin = interval.begin;
    part.end = interval.end;
  }
  part.shape = {call.extents[Dim::B], tokens,          call.extents[Dim::D],
                call.extents[Dim::N], multiprocessors, std::max<int64_t>(call.extents[Dim::C], 0)};
  return part;
}

}  // namespace

ConvExecutor::ConvExecutor(const ConvProblem& problem, ConvKernels kernels, Group* group,
                           int multiprocessors)
    : problem_(problem),
      kernels_(std::move(kernels)),
      group_(group),
      multiprocessors_(multiprocessors) {
  list({&kernels_.forward, &kernels_.backward, &kernels_.weight_grad, &kernels_.weight_grad_cast,
        &kernels_.halo_pack, &kernels_.halo_join, &kernels_.halo_add});
}

Result<ConvPlan> ConvExecutor::plan(const Call& call) const {
  ConvPlan out;
  out.part = conv_part(call, multiprocessors_);
  const ConvShape& shape = out.part.shape;
  if (kernels_.forward) {
    out.forward = conv_tiling(forward(), shape);
    LATHE_TRY(check_blocks(shape, out.forward));
  }
  if (kernels_.backward) {
    out.backward = conv_tiling(backward(), shape);
    LATHE_TRY(check_blocks(shape, out.backward));
  }
  if (!problem_.weight_grad) return out;
  const int64_t tiles = out.backward.tiles, taps = problem_.width + 1;
  WorkspaceLayout layout;
  out.workspace.partials = layout.add({shape.batch, tiles, taps, shape.channels, 4});
  if (group_) out.workspace.sums = layout.add({taps, shape.channels, 4});
  out.workspace.total = layout.total();
  LATHE_TRY(layout.status());
  return out;
}

ConvForwardParams ConvExecutor::forward_params(const Call& call, const ConvPlan& plan) const {
  auto p = conv_params<ConvForwardParams>(call, plan.part);
  p.run = plan.forward.run;
  p.tiles = plan.forward.tiles;
  p.state_tiles = plan.forward.state_tiles;
  return p;
}

ConvBackwardParams ConvExecutor::backward_params(const Call& call, const ConvPlan& plan) const {
  auto p = conv_params<ConvBackwardParams>(call, plan.part);
  p.partials = problem_.weight_grad ? call.workspace + plan.workspace.partials : nullptr;
  p.run = plan.backward.run;
  p.tiles = p.all_tiles = plan.backward.tiles;
  p.state_tiles = plan.backward.state_tiles;
  return p;
}

// Partials -> gradients; over ranks through float32 sums that keep the partials' layout, so that
// the second pass reads them as a single tile's.
Status ConvExecutor::weight_grad(const Call& call, const ConvPlan& plan) const {
  const ConvShape& shape = plan.part.shape;
  const int64_t channels = shape.channels;
  const Grid grid = conv_weight_grad_grid(shape);
  ConvWeightGradParams p = {};
  p.partials = call.workspace + plan.workspace.partials;
  p.tiles = static_cast<int>(shape.batch * plan.backward.tiles);
  p.channels = static_cast<int>(channels);
  p.dweight = call.tensors[conv::dweight].data;
  p.dbias = call.tensors[conv::dbias].data;
  if (!group_) return kernels_.weight_grad.launch(grid, &p, call.stream);

  auto* sums = reinterpret_cast<float*>(call.workspace + plan.workspace.sums);
  // The row of the bias travels even where nobody wants dbias: then it is whatever the kernel left.
  const int64_t rows = problem_.width + (problem_.bias ? 1 : 0);
  ConvWeightGradParams local = p;
  local.dweight = sums;
  local.dbias = problem_.bias ? sums + problem_.width * channels : nullptr;
  LATHE_TRY(kernels_.weight_grad.launch(grid, &local, call.stream));
  LATHE_TRY(all_reduce_f32(*group_, sums, static_cast<size_t>(rows * channels), call.stream));
  return give_weight_grad(call, plan, sums);
}

Status ConvExecutor::give_weight_grad(const Call& call, const ConvPlan& plan,
                                      const void* sums) const {
  ConvWeightGradParams p = {};
  p.partials = sums;
  p.tiles = 1;
  p.channels = static_cast<int>(plan.part.shape.channels);
  p.dweight = call.tensors[conv::dweight].data;
  p.dbias = call.tensors[conv::dbias].data;
  return kernels_.weight_grad_cast.launch(conv_weight_grad_grid(plan.part.shape), &p, call.stream);
}

Status ConvExecutor::launch(const Call& call, const ConvPlan& plan) const {
  if (kernels_.forward && problem_.over_slots()) {
    LATHE_TRY(launch_slots(call, plan));
  } else if (kernels_.forward) {
    const ConvForwardParams p = forward_params(call, plan);
    LATHE_TRY(launch_forward(p, plan, 0, p.tiles, p.state_tiles, call.stream));
  }
  if (!kernels_.backward) return {};
  const ConvBackwardParams p = backward_params(call, plan);
  LATHE_TRY(launch_backward(p, plan, 0, p.tiles, p.state_tiles, call.stream));
  return kernels_.weight_grad ? weight_grad(call, plan) : Status();
}

Result<Estimate> ConvExecutor::estimate_plan(const Call&, const ConvPlan& plan) const {
  Estimate out;
  out.cost = conv_cost(problem_, kernels_, plan.part.shape);
  const bool weights = kernels_.weight_grad.has_value();
  out.launches = (kernels_.forward ? 1 : 0) + (kernels_.backward ? 1 : 0) + (weights ? 1 : 0);
  if (weights && group_) ++out.launches;
  return out;
}

MadeExecutor make_conv(const Resolved& resolved, const DeviceFacts& facts) {
  Group* group = resolved.problem.group ? resolved.problem.group->group.get() : nullptr;
  const ConvProblem problem = conv_problem(resolved, group ? group->world() : 1);
  if (resolved.problem.group_flags & kRankInvariant) {
    return make_conv_rank_invariant(problem, facts, group,
                                    (resolved.problem.group_flags & kReduceParameterGrads) != 0);
  }
  const bool reduce = (resolved.problem.group_flags & kReduceParameterGrads) != 0 && problem.halo &&
                      problem.weight_grad;
  LATHE_ASSIGN(ConvKernels kernels, conv_kernels(problem, facts, reduce));
  auto executor = std::make_unique<ConvExecutor>(problem, std::move(kernels),
                                                 reduce ? group : nullptr, facts.multiprocessors);
  if (!problem.halo) return std::unique_ptr<Executor>(std::move(executor));
  return make_conv_over_ranks(std::move(executor), facts, group, reduce);
}

}  // namespace lathe
