// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// flash_attention_delta behind the plan: the first launch of flash_attention's backward by itself,
// and the last one where sinks have a gradient.
#include "codegen/base/invalid.h"
#include "ops/attention/block.h"
#include "ops/attention/params.h"
#include "templates/params/attention_backward.h"

namespace lathe {
namespace {

namespace tensors = attention_delta;

class AttentionDeltaWork final : public Work {
 public:
  AttentionDeltaWork(const AttentionProblem& problem, bool batch, const DeviceFacts& facts,
                     AttentionBackwardKernels kernels)
      : problem_(problem),
        batch_(batch),
        facts_(facts),
        kernels_(std::move(kernels)),
        specs_{kernels_.prepare} {
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
  bool batch_;
  DeviceFacts facts_;
  AttentionBackwardKernels kernels_;
  std::vector<KernelSpec> specs_;
  std::shared_ptr<const Kernel> prepare_, finish_;
};

Result<AttentionDeltaWork::Laid> AttentionDeltaWork::lay_out(const Call& call) const {
  Laid laid;
  const int64_t heads = call.extents[Letter::H];
  laid.shape = {batch_ ? call.extents[Letter::B] : 1, heads, heads,
                call.extents[batch_ ? Letter::Sq : Letter::Tq], 0};
  LATHE_TRY(check_block_shape(laid.shape));
  if (laid.shape.sequences * laid.shape.seq_q > kMaxExtent) {
    return too_many_block_rows("out", laid.shape);
  }
  AttentionGradients wanted;
  wanted.dsinks = problem_.dsinks;
  laid.launch = attention_backward_launch(problem_, kernels_, facts_, laid.shape, wanted);
  if (laid.launch.prepare_blocks > kMaxExtent) return too_many_block_rows("out", laid.shape);
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
  const AttentionStrides out = attention_strides(t[tensors::out], !batch_);
  const AttentionStrides dout = attention_strides(t[tensors::dout], !batch_);
  p.out_batch_stride = out.batch, p.dout_batch_stride = dout.batch;
  p.out_token_stride = out.token, p.dout_token_stride = dout.token;
  p.out_head_stride = out.head, p.dout_head_stride = dout.head;
  p.sequences = static_cast<int>(laid.shape.sequences);
  p.heads = static_cast<int>(laid.shape.heads);
  p.seq_q = static_cast<int>(laid.shape.seq_q);
  p.rows = static_cast<int>(laid.launch.rows);
  // delta lies as lse does.
  p.row_head_stride = laid.shape.seq_q, p.row_batch_stride = laid.shape.heads * laid.shape.seq_q;
  p.head_dim = problem_.head_dim;
  p.value_dim = problem_.value_dim;
  p.tiles = static_cast<int>(laid.launch.prepare_tiles);
  return p;
}

Status AttentionDeltaWork::run(const Call& call) const {
  LATHE_ASSIGN(const Laid laid, lay_out(call));
  LATHE_TRY(call.check_workspace(laid.workspace.total));
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

Status check_attention_delta(const Resolved& resolved) {
  LATHE_TRY(check_block_form(resolved.problem, tensors::out));
  return check_head_width("out", "DV", resolved[Letter::DV]);
}

Result<std::unique_ptr<Work>> make_attention_delta(const Resolved& resolved,
                                                   const DeviceFacts& facts) {
  LATHE_TRY(check_row_alignment(resolved.problem, kRowAlignment));
  AttentionProblem asked;
  asked.element = resolved.dtype(tensors::out);
  asked.head_dim = asked.value_dim = static_cast<int>(resolved[Letter::DV]);
  asked.sinks = resolved.has(tensors::sinks);
  asked.dsinks = resolved.has(tensors::dsinks);
  asked.dlse = resolved.has(tensors::dlse);
  LATHE_ASSIGN(AttentionBackwardKernels kernels,
               attention_backward_kernels(asked, facts, AttentionHeadChoice{false, false}));
  return std::unique_ptr<Work>(std::make_unique<AttentionDeltaWork>(
      asked, is_block_batch(resolved.problem, tensors::out), facts, std::move(kernels)));
}

}  // namespace lathe
