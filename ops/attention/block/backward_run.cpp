// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements flash_attention_block_bwd behind the plan. Its launches, in order, are
// attention_block_prepare, with positions attention_positions, attention_block_backward, and,
// deterministic, the finish.
#include <algorithm>

#include "codegen/base/integers.h"
#include "ops/attention/block/run.h"
#include "ops/attention/params.h"
#include "templates/params/attention_backward.h"

namespace lathe {
// These are of the workspace.
template <>
inline constexpr auto kOtherPointers<attention_block_bwd::kTensors, AttentionBlockPrepareParams> =
    std::tuple(&AttentionBlockPrepareParams::lse2, &AttentionBlockPrepareParams::sums);

namespace {

namespace tensors = attention_block_bwd;

// Holds a call's grids; `empty` if there is nothing to write.
struct BlockBwdPlan {
  AttentionShape shape;
  bool empty = false;
  AttentionBlockBackwardLaunch launch;

  int64_t total() const { return launch.total; }
};

class AttentionBlockBwdExecutor final
    : public PlannedExecutor<AttentionBlockBwdExecutor, BlockBwdPlan> {
 public:
  AttentionBlockBwdExecutor(AttentionBlockRequest request, const DeviceFacts& facts,
                            std::unique_ptr<AttentionBlockBackward> step)
      : request_(std::move(request)),
        facts_(facts),
        prepare_(attention_block_prepare_spec(problem())),
        step_(std::move(step)) {
    if (problem().deterministic) finish_ = attention_block_finish_spec(problem());
    list({&prepare_, &positions_.kernel, &step_->kernel, &finish_});
  }

  Result<BlockBwdPlan> plan(const Call& call) const {
    BlockBwdPlan layout;
    LATHE_ASSIGN(layout.shape, block_shape(call.extents, request_.batch));
    const bool dq = layout.shape.seq_q > 0 && (layout.shape.seq_k > 0 || request_.first);
    const bool dkv = layout.shape.seq_k > 0 && (layout.shape.seq_q > 0 || request_.first_keys);
    layout.empty = layout.shape.sequences == 0 || layout.shape.heads == 0 || !(dq || dkv);
    if (layout.empty) return layout;
    LATHE_ASSIGN(layout.launch, attention_block_backward_launch(problem(), step_->tiling(), facts_,
                                                                layout.shape, request_.first));
    const int64_t most = std::max(
        {layout.launch.prepare_blocks, layout.launch.main_blocks, layout.launch.finish_blocks});
    if (most <= kMaxExtent) return layout;
    return too_many_block_rows("q", layout.shape);
  }

  Status launch(const Call& call, const BlockBwdPlan& layout) const {
    if (layout.empty) return {};
    const AttentionBlockBackwardLaunch& grids = layout.launch;
    if (grids.prepare_blocks > 0) {
      const AttentionBlockPrepareParams first = prepare_params(call, layout);
      LATHE_TRY(prepare_.launch(grids.prepare_blocks, &first, call.stream));
    }
    if (grids.main_blocks > 0) {
      void* const ranges = call.workspace + grids.ranges;
      LATHE_TRY(
          positions_.find(call, tensors::q_pos, layout.shape.seq_q, step_->tiling().m, ranges));
      LATHE_TRY(step_->launch({request_, layout.shape, ranges, call}, grids));
    }
    if (!finish_ || grids.finish_blocks == 0) return {};
    const AttentionBlockFinishParams last = finish_params(call, layout);
    return finish_.launch(grids.finish_blocks, &last, call.stream);
  }

  // Which ranges are kept is on the device: the estimate takes them all.
  Result<Estimate> estimate_plan(const Call&, const BlockBwdPlan& layout) const {
    Estimate out;
    if (layout.empty) return out;
    const AttentionShape& shape = layout.shape;
    const int64_t head_dim = problem().head_dim, value_dim = problem().value_dim;
    const uint64_t widths = head_dim + value_dim;
    const uint64_t element = bytes_of(problem().element);
    const uint64_t rows = shape.sequences * shape.seq_q * shape.heads;
    const uint64_t keys = shape.sequences * shape.seq_k * shape.kv_heads;
    // q, dout, lse and delta; dq, dk and dv out, and in unless there is nothing to add to; k and v.
    const uint64_t dq = request_.first ? 4 : 8, dkv = request_.first_keys ? 4 : 8;
    out.cost.minimum_bytes =
        rows * (widths * element + 8 + dq * head_dim) + keys * widths * (element + dkv);
    const KernelSpec& main = *step_->kernel;
    const AttentionTiling& numbers = step_->tiling();
    const int64_t tile_rows = numbers.m, tile_keys = numbers.n;
    const int64_t row_tiles = ceil_div(shape.seq_q, tile_rows);
    const int64_t key_tiles = ceil_div(shape.seq_k, tile_keys);
    const uint64_t visit = widths * element + 8 + 8 * head_dim;  // of a row by a tile of keys
    out.cost.bytes = out.cost.minimum_bytes + 8 * rows +
                     attention_bytes_again(main, facts_, shape.sequences * shape.heads, key_tiles,
                                           shape.seq_q * static_cast<int64_t>(visit));
    out.cost.flops = 2 * static_cast<uint64_t>(3 * head_dim + 2 * value_dim) * rows *
                     static_cast<uint64_t>(shape.seq_k);
    const int64_t padded = 3 * numbers.width + 2 * numbers.value_width;
    out.cost.tensor_ops = static_cast<uint64_t>(2 * padded * shape.sequences * shape.heads) *
                          static_cast<uint64_t>(row_tiles * tile_rows * key_tiles * tile_keys);
    out.launches = kernel_count();
    return out;
  }

 private:
  const AttentionProblem& problem() const { return request_.attention.problem; }

  template <typename Params>
  void put_dq(const Call& call, const BlockBwdPlan& layout, Params* p) const {
    const Tensor& dq = call.tensors[tensors::dq];
    p->dq = dq.data;
    put_strides(attention_strides(dq, !request_.batch), &p->batch_stride, &p->token_stride,
                &p->head_stride);
    fill_sizes(problem(), layout.shape, p);
  }

  AttentionBlockPrepareParams prepare_params(const Call& call, const BlockBwdPlan& layout) const {
    AttentionBlockPrepareParams p = {};
    fill_tensors<attention_block_bwd::kTensors>(call, !request_.batch, &p);
    fill_sections(layout.launch, call.workspace, &p);
    p.rows = layout.launch.lse2_values;
    p.chunks = layout.launch.sum_chunks;
    p.dq_chunks = layout.launch.dq_chunks;
    put_dq(call, layout, &p);
    return p;
  }

  AttentionBlockFinishParams finish_params(const Call& call, const BlockBwdPlan& layout) const {
    AttentionBlockFinishParams p = {};
    fill_sections(layout.launch, call.workspace, &p);
    put_dq(call, layout, &p);
    p.slice_stride = layout.launch.lse2_values * p.head_dim;
    p.chunks = p.slice_stride / 4;
    p.slices = static_cast<int>(layout.launch.slices);
    p.softmax_scale = request_.attention.softmax_scale;
    p.first = request_.first ? 1 : 0;
    return p;
  }

  AttentionBlockRequest request_;
  DeviceFacts facts_;
  KernelSlot prepare_, finish_;
  PositionRanges positions_{problem().positions};
  std::unique_ptr<AttentionBlockBackward> step_;
};

}  // namespace

MadeExecutor make_attention_block_bwd(AttentionBlockRequest request, const DeviceFacts& facts) {
  request.attention.problem.backward = true;
  request.first_keys = request.first || request.first_keys;
  LATHE_TRY(take_margin(facts, &request));
  LATHE_ASSIGN(auto step, make_step(attention_block_backwards(), request.attention.problem, facts));
  return executor_of<AttentionBlockBwdExecutor>(std::move(request), facts, std::move(step));
}

MadeExecutor make_attention_block_bwd(const Resolved& resolved, const DeviceFacts& facts) {
  LATHE_ASSIGN(AttentionBlockRequest request, attention_block_request(resolved));
  request.attention.problem.deterministic = resolved.options_as<BlockOptions>().deterministic;
  return make_attention_block_bwd(std::move(request), facts);
}

}  // namespace lathe
