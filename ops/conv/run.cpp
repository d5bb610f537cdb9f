// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The plan of causal_conv1d: kernels, workspace, parameters, and the launches of a single rank.
#include "ops/conv/run.h"

#include "codegen/base/invalid.h"

namespace lathe {
namespace {

// Grids are counted in 31 bits. No block does less than 32 channels of one tile, so this refuses
// only what no device's memory holds.
Status check_blocks(const ConvPart& part, int64_t tiles, int64_t state_tiles) {
  const int64_t channels = (part.shape.channels + 31) / 32;
  int64_t blocks;
  if (!__builtin_mul_overflow(part.shape.batch, tiles, &blocks) && blocks <= kMaxExtent &&
      !__builtin_mul_overflow(blocks + state_tiles, channels, &blocks) && blocks <= kMaxExtent) {
    return {};
  }
  return Status(Code::unsupported,
                text("x [", part.shape.batch, ", ", part.shape.tokens, ", ", part.shape.channels,
                     "] needs more than ", kMaxExtent, " blocks; split the batch"));
}

}  // namespace

ConvPart conv_part(const Call& call) {
  ConvPart part;
  const int64_t tokens = call.extents[Letter::T];
  part.length = tokens;
  part.end = tokens;
  if (call.shard) {
    const Interval interval = call.shard->layout.partition.part(call.shard->rank);
    part.length = call.shard->layout.partition.length();
    part.begin = interval.begin;
    part.end = interval.end;
  }
  part.shape = {call.extents[Letter::B], tokens, call.extents[Letter::D], call.extents[Letter::N]};
  return part;
}

ConvWork::ConvWork(const ConvProblem& problem, ConvKernels kernels, Group* group, bool reduce)
    : problem_(problem),
      kernels_(std::move(kernels)),
      group_(problem.halo ? group : nullptr),
      reduce_(reduce) {
  for (const auto* spec :
       {&kernels_.forward, &kernels_.backward, &kernels_.weight_grad, &kernels_.weight_grad_cast,
        &kernels_.halo_pack, &kernels_.halo_join, &kernels_.halo_add}) {
    if (*spec) specs_.push_back(**spec);
  }
}

void ConvWork::bind(const std::vector<PlanKernel>& kernels) {
  size_t next = 0;
  const auto take = [&](const std::optional<KernelSpec>& spec) {
    return spec ? kernels[next++].loaded : nullptr;
  };
  loaded_.forward = take(kernels_.forward);
  loaded_.backward = take(kernels_.backward);
  loaded_.weight_grad = take(kernels_.weight_grad);
  loaded_.weight_grad_cast = take(kernels_.weight_grad_cast);
  loaded_.halo_pack = take(kernels_.halo_pack);
  loaded_.halo_join = take(kernels_.halo_join);
  loaded_.halo_add = take(kernels_.halo_add);
}

HaloPlan ConvWork::halo(const Call& call) const {
  if (!group_ || !call.shard) return {};
  return halo_plan(call.shard->layout.partition, call.shard->rank, problem_.width);
}

Result<ConvWorkspace> ConvWork::lay_out(const Call& call, const ConvPart& part,
                                        const HaloPlan& halo) const {
  ConvWorkspace out;
  Sections sections;
  const int64_t batch = part.shape.batch, channels = part.shape.channels;
  const int64_t taps = problem_.width + 1, rows = problem_.width - 1;
  const int64_t element = bytes_of(problem_.x);
  if (problem_.weight_grad) {
    const int64_t tiles = conv_tiles(*kernels_.backward, part.shape.tokens);
    LATHE_TRY(check_blocks(part, tiles, 0));
    LATHE_TRY(sections.add({batch, tiles, taps, channels, 4}, &out.partials));
    if (reduce_) LATHE_TRY(sections.add({taps, channels, 4}, &out.sums));
  }
  if (group_ && call.shard) {
    const auto sources = static_cast<int64_t>(halo.sources.size());
    const auto destinations = static_cast<int64_t>(halo.destinations.size());
    LATHE_TRY(sections.add({rows, batch, channels, element}, &out.rows, &out.row_bytes));
    LATHE_TRY(sections.add({sources, out.row_bytes}, &out.received));
    if (!halo.aligned) LATHE_TRY(sections.add({out.row_bytes}, &out.halo));
    if (kernels_.backward) {
      LATHE_TRY(sections.add({rows, batch, channels, 4}, &out.dhalo, &out.dhalo_bytes));
      LATHE_TRY(sections.add({destinations, out.dhalo_bytes}, &out.dreceived));
    }
  }
  out.total = sections.total();
  return out;
}

Result<size_t> ConvWork::workspace_bytes(const Call& call) const {
  auto workspace = lay_out(call, conv_part(call), halo(call));
  LATHE_TRY(workspace);
  return workspace->total;
}

ConvForwardParams ConvWork::forward_params(const Call& call, const ConvPart& part) const {
  const auto& t = call.tensors;
  ConvForwardParams p = {};
  p.x = t[conv::x].data;
  p.weight = t[conv::weight].data;
  p.bias = t[conv::bias].data;
  p.residual = t[conv::residual].data;
  p.initial_state = t[conv::initial_state].data;
  p.cu_seqlens = t[conv::cu_seqlens].data;
  p.y = t[conv::y].data;
  p.final_state = t[conv::final_state].data;
  fill_strides(t[conv::x], &p.x_batch_stride, &p.x_token_stride);
  fill_strides(t[conv::residual], &p.residual_batch_stride, &p.residual_token_stride);
  fill_strides(t[conv::y], &p.y_batch_stride, &p.y_token_stride);
  fill_part(part, &p);
  p.tiles = static_cast<int>(conv_tiles(*kernels_.forward, part.shape.tokens));
  p.state_tiles = static_cast<int>(conv_state_tiles(*kernels_.forward, part.shape));
  return p;
}

ConvBackwardParams ConvWork::backward_params(const Call& call, const ConvPart& part,
                                             const ConvWorkspace& workspace) const {
  const auto& t = call.tensors;
  ConvBackwardParams p = {};
  p.x = t[conv::x].data;
  p.weight = t[conv::weight].data;
  p.bias = t[conv::bias].data;
  p.dy = t[conv::dy].data;
  p.initial_state = t[conv::initial_state].data;
  p.dfinal_state = t[conv::dfinal_state].data;
  p.cu_seqlens = t[conv::cu_seqlens].data;
  p.dx = t[conv::dx].data;
  p.dinitial_state = t[conv::dinitial_state].data;
  p.partials = problem_.weight_grad ? call.workspace + workspace.partials : nullptr;
  fill_strides(t[conv::x], &p.x_batch_stride, &p.x_token_stride);
  fill_strides(t[conv::dy], &p.dy_batch_stride, &p.dy_token_stride);
  fill_strides(t[conv::dx], &p.dx_batch_stride, &p.dx_token_stride);
  fill_part(part, &p);
  p.tiles = static_cast<int>(conv_tiles(*kernels_.backward, part.shape.tokens));
  p.all_tiles = p.tiles;
  p.state_tiles = static_cast<int>(conv_state_tiles(*kernels_.backward, part.shape));
  return p;
}

// Partials -> gradients; over ranks through float32 sums that keep the partials' layout, so that
// the second pass reads them as a single tile's.
Status ConvWork::weight_grad(const Call& call, const ConvPart& part,
                             const ConvWorkspace& workspace) const {
  const int64_t channels = part.shape.channels;
  const Grid grid = conv_weight_grad_grid(*kernels_.weight_grad, part.shape);
  ConvWeightGradParams p = {};
  p.partials = call.workspace + workspace.partials;
  p.tiles = static_cast<int>(part.shape.batch * conv_tiles(*kernels_.backward, part.shape.tokens));
  p.channels = static_cast<int>(channels);
  p.dweight = call.tensors[conv::dweight].data;
  p.dbias = call.tensors[conv::dbias].data;
  if (!reduce_) return loaded_.weight_grad->launch(grid, &p, call.stream);

  auto* sums = reinterpret_cast<float*>(call.workspace + workspace.sums);
  // The row of the bias travels even where nobody wants dbias: then it is whatever the kernel left.
  const int64_t rows = problem_.width + (problem_.bias ? 1 : 0);
  ConvWeightGradParams local = p;
  local.dweight = sums;
  local.dbias = problem_.bias ? sums + problem_.width * channels : nullptr;
  LATHE_TRY(loaded_.weight_grad->launch(grid, &local, call.stream));
  LATHE_TRY(all_reduce_f32(*group_, sums, static_cast<size_t>(rows * channels), call.stream));
  p.partials = sums;
  p.tiles = 1;
  return loaded_.weight_grad_cast->launch(
      conv_weight_grad_grid(*kernels_.weight_grad_cast, part.shape), &p, call.stream);
}

Status ConvWork::run(const Call& call) const {
  const ConvPart part = conv_part(call);
  const HaloPlan plan = halo(call);
  auto workspace = lay_out(call, part, plan);
  LATHE_TRY(workspace);
  LATHE_TRY(call.check_workspace(static_cast<int64_t>(workspace->total)));
  for (const auto* spec : {&kernels_.forward, &kernels_.backward}) {
    if (!*spec) continue;
    LATHE_TRY(check_blocks(part, conv_tiles(**spec, part.shape.tokens),
                           conv_state_tiles(**spec, part.shape)));
  }
  if (group_ && call.shard) return run_sharded(call, part, plan, *workspace);
  if (kernels_.forward) {
    const ConvForwardParams p = forward_params(call, part);
    LATHE_TRY(launch_tiles(*loaded_.forward, *kernels_.forward, part.shape, p, 0, p.tiles,
                           p.state_tiles, call.stream));
  }
  if (!kernels_.backward) return {};
  const ConvBackwardParams p = backward_params(call, part, *workspace);
  LATHE_TRY(launch_tiles(*loaded_.backward, *kernels_.backward, part.shape, p, 0, p.tiles,
                         p.state_tiles, call.stream));
  return problem_.weight_grad ? weight_grad(call, part, *workspace) : Status();
}

Result<Estimate> ConvWork::estimate(const Call& call) const {
  Estimate out;
  const ConvPart part = conv_part(call);
  out.cost = conv_cost(problem_, kernels_, part.shape);
  const bool weights = problem_.weight_grad;
  out.launches = (kernels_.forward ? 1 : 0) + (kernels_.backward ? 1 : 0) + (weights ? 1 : 0);
  if (weights && reduce_) ++out.launches;
  if (!group_ || !call.shard) return out;
  const HaloPlan plan = halo(call);
  const uint64_t exchange =
      (plan.destinations.empty() ? 0 : 1) + (plan.sources.empty() || plan.aligned ? 0 : 1);
  if (kernels_.forward) out.launches += 1 + exchange;
  if (!kernels_.backward) return out;
  // Behind a forward the halo is there already, and the tiles that hid its way go in one launch.
  out.launches += kernels_.forward ? 1 : 2 + exchange;
  if (!plan.destinations.empty()) ++out.launches;
  return out;
}

Result<std::unique_ptr<Work>> make_conv(const ConvProblem& problem, const DeviceFacts& facts,
                                        Group* group, bool reduce_parameter_grads) {
  const bool reduce = reduce_parameter_grads && problem.halo && problem.weight_grad;
  LATHE_ASSIGN(ConvKernels kernels, conv_kernels(problem, facts, reduce));
  return std::unique_ptr<Work>(
      std::make_unique<ConvWork>(problem, std::move(kernels), group, reduce));
}

}  // namespace lathe
