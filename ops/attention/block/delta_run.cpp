// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements flash_attention_delta behind the plan: the first launch of flash_attention's backward,
// and the last one if sinks have a gradient.
#include "codegen/base/invalid.h"
#include "ops/attention/backward/step.h"
#include "ops/attention/block/run.h"
#include "ops/attention/params.h"
#include "templates/params/attention_backward.h"

namespace lathe {
// These are of the workspace, or of a backward that has more gradients.
template <>
inline constexpr auto kOtherPointers<attention_delta::kTensors, AttentionBackwardPrepareParams> =
    std::tuple(&AttentionBackwardPrepareParams::lse2, &AttentionBackwardPrepareParams::delta,
               &AttentionBackwardPrepareParams::dsinks_parts,
               &AttentionBackwardPrepareParams::cu_seqlens_q, &AttentionBackwardPrepareParams::dq);
template <>
inline constexpr auto kOtherPointers<attention_delta::kTensors, AttentionBackwardFinishParams> =
    std::tuple(&AttentionBackwardFinishParams::dq_sums, &AttentionBackwardFinishParams::dk_parts,
               &AttentionBackwardFinishParams::dv_parts,
               &AttentionBackwardFinishParams::dsinks_parts, &AttentionBackwardFinishParams::dq,
               &AttentionBackwardFinishParams::dk, &AttentionBackwardFinishParams::dv);

namespace {

namespace tensors = attention_delta;

struct DeltaPlan {
  AttentionShape shape;
  AttentionBackwardLaunch launch;
  AttentionBackwardWorkspace workspace;

  int64_t total() const { return workspace.total; }
};

class AttentionDeltaExecutor final : public PlannedExecutor<AttentionDeltaExecutor, DeltaPlan> {
 public:
  AttentionDeltaExecutor(const AttentionProblem& problem, bool batch,
                         std::unique_ptr<AttentionBackward> kernels)
      : problem_(problem), batch_(batch), kernels_(std::move(kernels)) {
    list({&kernels_->prepare});
    if (problem.dsinks) list({&kernels_->finish});
  }

  Result<DeltaPlan> plan(const Call& call) const {
    DeltaPlan layout;
    const int64_t heads = call.extents[Dim::H];
    layout.shape = {batch_ ? call.extents[Dim::B] : 1, heads, heads,
                    call.extents[batch_ ? Dim::Sq : Dim::Tq], 0};
    LATHE_TRY(check_block_shape(layout.shape));
    if (layout.shape.sequences * layout.shape.seq_q > kMaxExtent) {
      return too_many_block_rows("out", layout.shape);
    }
    AttentionGradients wanted;
    wanted.dsinks = problem_.dsinks;
    layout.launch = kernels_->plan(layout.shape, wanted);
    if (layout.launch.prepare_blocks > kMaxExtent) return too_many_block_rows("out", layout.shape);
    LATHE_ASSIGN(layout.workspace,
                 attention_backward_workspace(problem_, layout.shape, layout.launch));
    return layout;
  }

  Status launch(const Call& call, const DeltaPlan& layout) const {
    if (layout.launch.prepare_blocks > 0) {
      auto p = params<AttentionBackwardPrepareParams>(call, layout);
      p.delta = call.tensors[tensors::delta].data;
      // delta lies as lse does.
      p.row_head_stride = layout.shape.seq_q;
      p.row_batch_stride = layout.shape.heads * layout.shape.seq_q;
      LATHE_TRY(kernels_->prepare.launch(layout.launch.prepare_blocks, &p, call.stream));
    }
    if (layout.launch.dsinks_blocks == 0) return {};
    const auto p = params<AttentionBackwardFinishParams>(call, layout);
    return kernels_->finish.launch(layout.launch.dsinks_blocks, &p, call.stream);
  }

  Result<Estimate> estimate_plan(const Call&, const DeltaPlan& layout) const {
    Estimate out;
    const uint64_t rows = layout.launch.rows * layout.shape.heads;
    const uint64_t width = problem_.value_dim;
    // out and dout, lse, dlse and delta; sinks and their gradient.
    out.cost.minimum_bytes =
        rows * (2 * width * bytes_of(problem_.element) + 8 + (problem_.dlse ? 4 : 0)) +
        layout.shape.heads * (problem_.dsinks ? 8 : 0);
    out.cost.bytes = out.cost.minimum_bytes + rows * 4;  // lse2, which nobody reads here
    out.cost.flops = 2 * rows * width;
    out.launches =
        (layout.launch.prepare_blocks > 0 ? 1 : 0) + (layout.launch.dsinks_blocks > 0 ? 1 : 0);
    return out;
  }

 private:
  template <typename Params>
  Params params(const Call& call, const DeltaPlan& layout) const {
    Params p = {};
    fill_tensors<attention_delta::kTensors>(call, !batch_, &p);
    fill_sizes(problem_, layout.shape, &p);
    fill_numbers(layout.launch, &p);
    fill_sections(layout.workspace, call.workspace, &p);
    p.tiles = static_cast<int>(layout.launch.prepare_tiles);
    return p;
  }

  AttentionProblem problem_;
  bool batch_;
  std::unique_ptr<AttentionBackward> kernels_;
};

}  // namespace

Status check_attention_delta(const Resolved& resolved) {
  LATHE_TRY(check_block_form(resolved.problem, tensors::out));
  return check_head_width("out", "DV", resolved[Dim::DV]);
}

AttentionProblem delta_step(const AttentionRequest& whole) {
  AttentionProblem out;
  out.element = whole.problem.element;
  out.head_dim = out.value_dim = whole.problem.value_dim;
  out.sinks = out.dsinks = whole.problem.dsinks;
  out.dlse = whole.problem.dlse;
  return out;
}

MadeExecutor make_attention_delta(const AttentionProblem& problem, bool batch,
                                  const DeviceFacts& facts) {
  return executor_of<AttentionDeltaExecutor>(problem, batch,
                                             make_attention_backward_ends(problem, facts));
}

MadeExecutor make_attention_delta(const Resolved& resolved, const DeviceFacts& facts) {
  AttentionProblem asked;
  asked.element = resolved.dtype(tensors::out);
  asked.head_dim = asked.value_dim = static_cast<int>(resolved[Dim::DV]);
  asked.alignment = row_alignment(resolved);
  asked.sinks = resolved.has(tensors::sinks);
  asked.dsinks = resolved.has(tensors::dsinks);
  asked.dlse = resolved.has(tensors::dlse);
  return make_attention_delta(asked, is_block_batch(resolved.problem, tensors::out), facts);
}

}  // namespace lathe
