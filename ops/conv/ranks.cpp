// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Launches causal_conv1d on one rank among several. Only the first token tile and the state tiles
// need the halo: all others run while the messages travel.
#include "ops/conv/run.h"

namespace lathe {

// Holds the steps that collective/plans/conv_halo.h calls, with their launch parameters. The object
// lives on the stack of one call.
struct ShardedConv {
  const ConvExecutor& executor;
  const Call& call;
  const ConvPlan& asked;
  const HaloPlan plan = executor.halo(call);
  const ConvPart& part = asked.part;
  const ConvWorkspace& workspace = asked.workspace;
  ConvForwardParams forward = {};
  ConvBackwardParams backward = {};

  void* at(int64_t offset) const { return call.workspace + offset; }
  void* halo() const {
    if (plan.sources.empty()) return nullptr;
    return at(plan.aligned ? workspace.received : workspace.halo);
  }

  Status launch_forward(int first, int tiles, int state_tiles, CUstream stream) {
    return launch_tiles(executor.kernels_.forward, executor.forward_, part.shape, forward, first,
                        tiles, state_tiles, stream);
  }
  Status launch_backward(int first, int tiles, int state_tiles, CUstream stream) {
    return launch_tiles(executor.kernels_.backward, executor.backward_, part.shape, backward, first,
                        tiles, state_tiles, stream);
  }

  template <typename Params>
  Status launch_halo(const KernelSlot& kernel, const Params& p, CUstream stream) const {
    return kernel.launch(conv_halo_grid(kernel.numbers(), executor.problem_, part.shape), &p,
                         stream);
  }
  Status pack(CUstream stream);
  Status join(CUstream stream);
  Status add(CUstream stream);

  Status forward_interior(CUstream stream) {
    return launch_forward(1, forward.tiles - 1, 0, stream);
  }
  Status forward_boundary(CUstream stream) {
    return launch_forward(0, std::min(forward.tiles, 1), forward.state_tiles, stream);
  }
  // A forward in the same call leaves the halo in the workspace.
  bool halo_is_there() const { return executor.kernels_.forward.has_value(); }
  // Tiles after the first, in two halves: one hides the rows on their way here, if they are yet to
  // come, the other the gradients on their way back.
  int half() const { return halo_is_there() ? 0 : std::max(backward.all_tiles - 1, 0) / 2; }
  Status backward_first_half(CUstream stream) { return launch_backward(1, half(), 0, stream); }
  Status backward_boundary(CUstream stream) {
    return launch_backward(0, std::min(backward.all_tiles, 1), backward.state_tiles, stream);
  }
  Status backward_second_half(CUstream stream) {
    return launch_backward(1 + half(), backward.all_tiles - 1 - half(), 0, stream);
  }

  template <Status (ShardedConv::*kBody)(CUstream)>
  Step step() {
    return {[](void* user, CUstream stream) {
              return (static_cast<ShardedConv*>(user)->*kBody)(stream);
            },
            this};
  }
  Step join_step() { return plan.aligned ? Step{} : step<&ShardedConv::join>(); }

  Status run_forward(const HaloBuffers& rows);
  Status run_backward(const HaloBuffers& rows);
};

Status ShardedConv::pack(CUstream stream) {
  auto p = conv_params<ConvHaloPackParams>(call, part);
  p.rows = at(workspace.rows);
  return launch_halo(executor.kernels_.halo_pack, p, stream);
}

Status ShardedConv::join(CUstream stream) {
  auto p = conv_params<ConvHaloJoinParams>(call, part);
  p.messages = at(workspace.received);
  p.halo = at(workspace.halo);
  for (const HaloPeer& peer : plan.sources) {
    p.part_begin[p.count] = static_cast<int>(peer.part.begin);
    p.part_end[p.count++] = static_cast<int>(peer.part.end);
  }
  return launch_halo(executor.kernels_.halo_join, p, stream);
}

Status ShardedConv::add(CUstream stream) {
  auto p = conv_params<ConvHaloAddParams>(call, part);
  p.messages = at(workspace.dreceived);
  for (const HaloPeer& peer : plan.destinations) {
    p.from_begin[p.count++] = static_cast<int>(peer.part.begin);
  }
  return launch_halo(executor.kernels_.halo_add, p, stream);
}

Status ShardedConv::run_forward(const HaloBuffers& rows) {
  forward = executor.forward_params(call, part);
  forward.halo = halo();
  return conv_halo_forward(*executor.group_, plan, rows, step<&ShardedConv::pack>(),
                           step<&ShardedConv::forward_interior>(), join_step(),
                           step<&ShardedConv::forward_boundary>(), call.stream);
}

Status ShardedConv::run_backward(const HaloBuffers& rows) {
  backward = executor.backward_params(call, asked);
  backward.halo = halo();
  backward.dhalo = at(workspace.dhalo);
  const HaloBuffers gradients{at(workspace.dhalo), at(workspace.dreceived),
                              static_cast<size_t>(workspace.dhalo_bytes)};
  const bool there = halo_is_there();
  return conv_halo_backward(
      *executor.group_, plan, there ? HaloBuffers{} : rows, gradients,
      there ? Step{} : step<&ShardedConv::pack>(), step<&ShardedConv::backward_first_half>(),
      there ? Step{} : join_step(), step<&ShardedConv::backward_boundary>(),
      step<&ShardedConv::backward_second_half>(), step<&ShardedConv::add>(), call.stream);
}

Status ConvExecutor::run_sharded(const Call& call, const ConvPlan& plan) const {
  ShardedConv sharded{*this, call, plan};
  const ConvWorkspace& at = plan.workspace;
  const HaloBuffers rows{call.workspace + at.rows, call.workspace + at.received,
                         static_cast<size_t>(at.row_bytes)};
  if (kernels_.forward) LATHE_TRY(sharded.run_forward(rows));
  if (!kernels_.backward) return {};
  LATHE_TRY(sharded.run_backward(rows));
  return problem_.weight_grad ? weight_grad(call, plan) : Status();
}

}  // namespace lathe
