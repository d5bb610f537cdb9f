// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// flash_attention_delta behind the plan: the first launch of flash_attention's backward by itself,
// and the last one where sinks have a gradient.
#include "api/attention_block.h"
#include "api/boundary.h"
#include "templates/params/attention_backward.h"

namespace lathe {
namespace {

namespace tensors = attention_delta;

class AttentionDeltaWork final : public Work {
 public:
  AttentionDeltaWork(const AttentionProblem& problem, const DeviceFacts& facts,
                     AttentionBackwardKernels kernels)
      : problem_(problem), facts_(facts), kernels_(std::move(kernels)), specs_{kernels_.prepare} {
    if (problem.dsinks) specs_.push_back(kernels_.finish);
  }

  const std::vector<KernelSpec>& specs() const override { return specs_; }
  void bind(const std::vector<PlanKernel>& kernels) override {
    prepare_ = kernels[0].loaded;
    if (problem_.dsinks) finish_ = kernels[1].loaded;
  }
  Result<size_t> workspace_bytes(const Call& call) const override {
    LATHE_ASSIGN(const Laid laid, lay_out(call));
    return static_cast<size_t>(laid.workspace.total);
  }
  Result<Estimate> estimate(const Call& call) const override;
  Status run(const Call& call) const override;

 private:
  struct Laid {
    AttentionShape shape;
    AttentionBackwardLaunch launch;
    AttentionBackwardWorkspace workspace;
  };
  Result<Laid> lay_out(const Call& call) const;
  AttentionBackwardPrepareParams params(const Call& call, const Laid& laid) const;

  AttentionProblem problem_;
  DeviceFacts facts_;
  AttentionBackwardKernels kernels_;
  std::vector<KernelSpec> specs_;
  std::shared_ptr<const Kernel> prepare_, finish_;
};

Result<AttentionDeltaWork::Laid> AttentionDeltaWork::lay_out(const Call& call) const {
  Laid laid;
  const int64_t heads = call.extents[Letter::H];
  laid.shape = {1, heads, heads, call.extents[Letter::Tq], 0};
  LATHE_TRY(check_block_shape(laid.shape));
  AttentionGradients wanted;
  wanted.dsinks = problem_.dsinks;
  laid.launch = attention_backward_launch(problem_, kernels_, facts_, laid.shape, wanted);
  if (laid.launch.prepare_blocks > kMaxExtent) {
    return Status(Code::unsupported,
                  text("out of ", heads, " heads and ", laid.shape.seq_q,
                       " tokens needs more than ", kMaxExtent, " blocks; split the heads"));
  }
  LATHE_ASSIGN(laid.workspace, attention_backward_workspace(problem_, laid.shape, laid.launch));
  return laid;
}

AttentionBackwardPrepareParams AttentionDeltaWork::params(const Call& call,
                                                          const Laid& laid) const {
  const auto& t = call.tensors;
  AttentionBackwardPrepareParams p = {};
  p.out = t[tensors::out].data;
  p.dout = t[tensors::dout].data;
  p.lse = t[tensors::lse].data;
  p.dlse = t[tensors::dlse].data;
  p.sinks = t[tensors::sinks].data;
  p.lse2 = call.workspace + laid.workspace.lse2;
  p.error = t[tensors::delta].data;
  p.dsinks_parts = call.workspace + laid.workspace.dsinks_parts;
  p.out_token_stride = t[tensors::out].stride[0];
  p.out_head_stride = t[tensors::out].stride[1];
  p.dout_token_stride = t[tensors::dout].stride[0];
  p.dout_head_stride = t[tensors::dout].stride[1];
  p.sequences = 1;
  p.heads = static_cast<int>(laid.shape.heads);
  p.seq_q = p.rows = static_cast<int>(laid.shape.seq_q);
  p.head_dim = problem_.head_dim;
  p.value_dim = problem_.value_dim;
  p.tiles = static_cast<int>(laid.launch.prepare_tiles);
  return p;
}

Status AttentionDeltaWork::run(const Call& call) const {
  LATHE_ASSIGN(const Laid laid, lay_out(call));
  const auto blocks = [](int64_t count) { return Grid{static_cast<unsigned>(count), 1, 1}; };
  if (laid.launch.prepare_blocks > 0) {
    const AttentionBackwardPrepareParams p = params(call, laid);
    LATHE_TRY(prepare_->launch(blocks(laid.launch.prepare_blocks), &p, call.stream));
  }
  if (!problem_.dsinks || laid.launch.dsinks_blocks == 0) return {};
  AttentionBackwardFinishParams p = {};
  p.dsinks_parts = call.workspace + laid.workspace.dsinks_parts;
  p.dsinks = call.tensors[tensors::dsinks].data;
  p.heads = p.kv_heads = static_cast<int>(laid.shape.heads);
  p.tiles = static_cast<int>(laid.launch.prepare_tiles);
  p.dsinks_blocks = static_cast<int>(laid.launch.dsinks_blocks);
  return finish_->launch(blocks(laid.launch.dsinks_blocks), &p, call.stream);
}

Result<Estimate> AttentionDeltaWork::estimate(const Call& call) const {
  LATHE_ASSIGN(const Laid laid, lay_out(call));
  Estimate out;
  const uint64_t rows = laid.launch.rows * laid.shape.heads;
  const uint64_t width = problem_.value_dim;
  // out and dout, lse, dlse and delta; sinks and their gradient.
  out.cost.minimum_bytes =
      rows * (2 * width * bytes_of(problem_.element) + 8 + (problem_.dlse ? 4 : 0)) +
      laid.shape.heads * (problem_.dsinks ? 8 : 0);
  out.cost.bytes = out.cost.minimum_bytes + rows * 4;  // lse2, which nobody reads here
  out.cost.flops = 2 * rows * width;
  out.launches = (laid.launch.prepare_blocks > 0 ? 1 : 0) + (laid.launch.dsinks_blocks > 0 ? 1 : 0);
  return out;
}

}  // namespace

Result<std::unique_ptr<Work>> make_attention_delta(const lathe_problem& problem,
                                                   const Extents& promised,
                                                   const DeviceFacts& facts) {
  if (problem.alignment < 16) {
    return Status(Code::unsupported, text("alignment is ", problem.alignment,
                                          "; flash_attention_delta needs 16 bytes "
                                          "(lathe_problem_alignment)"));
  }
  AttentionProblem asked;
  asked.element = problem.tensors[tensors::out].dtype;
  asked.head_dim = asked.value_dim = static_cast<int>(promised[Letter::DV]);
  asked.sinks = problem.has(tensors::sinks);
  asked.dsinks = problem.has(tensors::dsinks);
  asked.dlse = problem.has(tensors::dlse);
  LATHE_ASSIGN(AttentionBackwardKernels kernels,
               attention_backward_kernels(asked, facts, AttentionHeadChoice{false, false}));
  return std::unique_ptr<Work>(
      std::make_unique<AttentionDeltaWork>(asked, facts, std::move(kernels)));
}

}  // namespace lathe
