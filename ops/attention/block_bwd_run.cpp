// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// flash_attention_block_bwd behind the plan: its launches, in order, are attention_block_prepare,
// with positions attention_positions, attention_block_backward, and, deterministic, the finish.
#include <algorithm>

#include "codegen/base/invalid.h"
#include "ops/attention/block.h"
#include "ops/attention/memory.h"
#include "ops/attention/params.h"
#include "ops/attention/snippets.h"
#include "templates/params/attention_backward.h"

namespace lathe {
namespace {

namespace tensors = attention_block_bwd;

class AttentionBlockBwdWork final : public Work {
 public:
  // How the call's tensors lie and what is in them.
  struct Form {
    bool batch = false;
    bool first = false, first_keys = false;  // dq, and dk and dv, are written and not read
  };
  AttentionBlockBwdWork(const AttentionRequest& request, const Form& form, const BlockGrid& grid,
                        const DeviceFacts& facts, AttentionBlockKernels kernels)
      : request_(request), form_(form), grid_(grid), facts_(facts), kernels_(std::move(kernels)) {
    for (const auto* spec :
         {&kernels_.prepare, &kernels_.positions, &kernels_.backward, &kernels_.finish}) {
      if (*spec) specs_.push_back(**spec);
    }
  }

  const std::vector<KernelSpec>& specs() const override { return specs_; }
  void bind(const std::vector<PlanKernel>& kernels) override;
  Result<size_t> workspace_bytes(const Call& call) const override;
  Result<Estimate> estimate(const Call& call) const override;
  Status run(const Call& call) const override;

 private:
  // A call with its grids; empty if there is nothing to write.
  struct Laid {
    AttentionShape shape;
    bool empty = false;
    AttentionBlockBackwardLaunch launch;
  };
  Result<Laid> lay_out(const Call& call) const;
  template <typename Params>
  void put_dq(const Call& call, const Laid& laid, Params* p) const;
  AttentionBlockPrepareParams prepare_params(const Call& call, const Laid& laid) const;
  AttentionBlockBackwardParams params(const Call& call, const Laid& laid) const;
  AttentionBlockFinishParams finish_params(const Call& call, const Laid& laid) const;

  AttentionRequest request_;
  Form form_;
  BlockGrid grid_;
  DeviceFacts facts_;
  AttentionBlockKernels kernels_;
  std::vector<KernelSpec> specs_;
  std::shared_ptr<const Kernel> prepare_, positions_, backward_, finish_;
};

void AttentionBlockBwdWork::bind(const std::vector<PlanKernel>& kernels) {
  size_t next = 0;
  const auto take = [&](const std::optional<KernelSpec>& spec) {
    return spec ? kernels[next++].loaded : nullptr;
  };
  prepare_ = take(kernels_.prepare);
  positions_ = take(kernels_.positions);
  grid_.bind(kernels[next]);
  backward_ = take(kernels_.backward);
  finish_ = take(kernels_.finish);
}

Result<AttentionBlockBwdWork::Laid> AttentionBlockBwdWork::lay_out(const Call& call) const {
  Laid laid;
  LATHE_ASSIGN(laid.shape, block_shape(call.extents, form_.batch));
  const bool dq = laid.shape.seq_q > 0 && (laid.shape.seq_k > 0 || form_.first);
  const bool dkv = laid.shape.seq_k > 0 && (laid.shape.seq_q > 0 || form_.first_keys);
  laid.empty = laid.shape.sequences == 0 || laid.shape.heads == 0 || !(dq || dkv);
  if (laid.empty) return laid;
  LATHE_ASSIGN(laid.launch, attention_block_backward_launch(request_.problem, kernels_, facts_,
                                                            laid.shape, form_.first));
  const int64_t most =
      std::max({laid.launch.prepare_blocks, laid.launch.main_blocks, laid.launch.finish_blocks});
  if (most <= kMaxExtent) return laid;
  return too_many_block_rows("q", laid.shape);
}

Result<size_t> AttentionBlockBwdWork::workspace_bytes(const Call& call) const {
  LATHE_ASSIGN(const Laid laid, lay_out(call));
  return static_cast<size_t>(laid.launch.total);
}

AttentionBlockPrepareParams AttentionBlockBwdWork::prepare_params(const Call& call,
                                                                  const Laid& laid) const {
  AttentionBlockPrepareParams p = {};
  p.lse = call.tensors[tensors::lse].data;
  p.lse2 = call.workspace + laid.launch.lse2;
  p.sums = call.workspace + laid.launch.sums;
  p.rows = laid.launch.lse2_values;
  p.chunks = laid.launch.sum_chunks;
  p.dq_chunks = laid.launch.dq_chunks;
  put_dq(call, laid, &p);
  return p;
}

template <typename Params>
void AttentionBlockBwdWork::put_dq(const Call& call, const Laid& laid, Params* p) const {
  const Tensor& dq = call.tensors[tensors::dq];
  const AttentionStrides strides = attention_strides(dq, !form_.batch);
  p->dq = dq.data;
  p->batch_stride = strides.batch, p->token_stride = strides.token, p->head_stride = strides.head;
  p->heads = static_cast<int>(laid.shape.heads);
  p->head_dim = request_.problem.head_dim;
  p->seq_q = static_cast<int>(laid.shape.seq_q);
}

AttentionBlockBackwardParams AttentionBlockBwdWork::params(const Call& call,
                                                           const Laid& laid) const {
  const auto& t = call.tensors;
  const AttentionShape& shape = laid.shape;
  AttentionBlockBackwardParams p = {};
  AttentionBackwardParams& b = p.backward;
  b.q = t[tensors::q].data;
  b.k = t[tensors::k].data;
  b.v = t[tensors::v].data;
  b.dout = t[tensors::dout].data;
  b.lse2 = call.workspace + laid.launch.lse2;
  b.error = t[tensors::delta].data;
  b.alibi_slopes = t[tensors::alibi_slopes].data;
  b.dq = t[tensors::dq].data;
  b.dk = t[tensors::dk].data;
  b.dv = t[tensors::dv].data;
  const auto fill = [&](int tensor, long long* batch, long long* token, long long* head) {
    const AttentionStrides from = attention_strides(t[tensor], !form_.batch);
    *batch = from.batch, *token = from.token, *head = from.head;
  };
  fill(tensors::q, &b.q_batch_stride, &b.q_token_stride, &b.q_head_stride);
  fill(tensors::k, &b.k_batch_stride, &b.k_token_stride, &b.k_head_stride);
  fill(tensors::v, &b.v_batch_stride, &b.v_token_stride, &b.v_head_stride);
  fill(tensors::dout, &b.dout_batch_stride, &b.dout_token_stride, &b.dout_head_stride);
  fill(tensors::dq, &b.dq_batch_stride, &b.dq_token_stride, &b.dq_head_stride);
  fill(tensors::dk, &b.dk_batch_stride, &b.dk_token_stride, &b.dk_head_stride);
  fill(tensors::dv, &b.dv_batch_stride, &b.dv_token_stride, &b.dv_head_stride);
  b.alibi_batch_stride = request_.alibi_rows ? shape.heads : 0;
  b.sequences = static_cast<int>(shape.sequences);
  b.heads = static_cast<int>(shape.heads);
  b.kv_heads = static_cast<int>(shape.kv_heads);
  b.seq_q = static_cast<int>(shape.seq_q);
  b.seq_k = static_cast<int>(shape.seq_k);
  b.head_dim = request_.problem.head_dim;
  b.value_dim = request_.problem.value_dim;
  if (request_.problem.deterministic) {
    b.dq = call.workspace + laid.launch.sums;
    b.dq_head_stride = b.head_dim;
    b.dq_token_stride = shape.heads * b.head_dim;
    b.dq_batch_stride = shape.seq_q * b.dq_token_stride;
    b.dq_slice_stride = shape.sequences * b.dq_batch_stride;
  }
  b.window_left = block_window(request_.window_left);
  b.window_right = block_window(request_.window_right);
  b.slices = static_cast<int>(laid.launch.slices);
  b.softmax_scale = request_.softmax_scale;
  b.softcap = request_.softcap;
  put_snippets(request_, call, {}, &b);
  p.pairs = t[tensors::pairs].data;
  p.pair_batches = t[tensors::pair_batch].data;
  p.q_positions = t[tensors::q_pos].data;
  p.k_positions = t[tensors::k_pos].data;
  p.row_ranges = call.workspace + laid.launch.ranges;
  const int64_t pairs = call.extents[Letter::NP];
  p.pair_count = static_cast<int>(pairs == kUnknown ? 0 : pairs);
  p.first_keys = form_.first_keys ? 1 : 0;
  return p;
}

AttentionBlockFinishParams AttentionBlockBwdWork::finish_params(const Call& call,
                                                                const Laid& laid) const {
  AttentionBlockFinishParams p = {};
  p.sums = call.workspace + laid.launch.sums;
  put_dq(call, laid, &p);
  p.slice_stride = laid.launch.lse2_values * p.head_dim;
  p.chunks = p.slice_stride / 4;
  p.slices = static_cast<int>(laid.launch.slices);
  p.softmax_scale = request_.softmax_scale;
  p.first = form_.first ? 1 : 0;
  return p;
}

Status AttentionBlockBwdWork::run(const Call& call) const {
  LATHE_ASSIGN(const Laid laid, lay_out(call));
  LATHE_TRY(call.check_workspace(laid.launch.total));
  if (laid.empty) return {};
  const auto blocks = [](int64_t count) { return Grid{static_cast<unsigned>(count), 1, 1}; };
  const AttentionBlockBackwardLaunch& grids = laid.launch;
  if (grids.prepare_blocks > 0) {
    const AttentionBlockPrepareParams first = prepare_params(call, laid);
    LATHE_TRY(prepare_->launch(blocks(grids.prepare_blocks), &first, call.stream));
  }
  if (positions_ && grids.main_blocks > 0) {
    LATHE_TRY(find_position_ranges(
        *positions_, *kernels_.positions, call.tensors[tensors::q_pos].data, laid.shape.seq_q,
        kernels_.backward->constant("m"), call.workspace + grids.ranges, call.stream));
  }
  if (grids.main_blocks > 0) {
    const AttentionBlockBackwardParams p = params(call, laid);
    const int64_t count = grid_.blocks(*kernels_.backward, grids.main_blocks);
    LATHE_TRY(backward_->launch(blocks(count), &p, call.stream));
  }
  if (!finish_ || grids.finish_blocks == 0) return {};
  const AttentionBlockFinishParams last = finish_params(call, laid);
  return finish_->launch(blocks(grids.finish_blocks), &last, call.stream);
}

// Which pairs are kept is on the device: the estimate takes them all.
Result<Estimate> AttentionBlockBwdWork::estimate(const Call& call) const {
  LATHE_ASSIGN(const Laid laid, lay_out(call));
  Estimate out;
  if (laid.empty) return out;
  const AttentionShape& shape = laid.shape;
  const AttentionProblem& problem = request_.problem;
  const uint64_t widths = problem.head_dim + problem.value_dim;
  const uint64_t element = bytes_of(problem.element);
  const uint64_t rows = shape.sequences * shape.seq_q * shape.heads;
  const uint64_t keys = shape.sequences * shape.seq_k * shape.kv_heads;
  // q, dout, lse and delta; dq, dk and dv out, and in unless there is nothing to add to; k and v.
  const uint64_t dq = form_.first ? 4 : 8, dkv = form_.first_keys ? 4 : 8;
  out.cost.minimum_bytes =
      rows * (widths * element + 8 + dq * problem.head_dim) + keys * widths * (element + dkv);
  const KernelSpec& main = *kernels_.backward;
  const int64_t tile_rows = main.constant("m"), tile_keys = main.constant("n");
  const int64_t row_tiles = (shape.seq_q + tile_rows - 1) / tile_rows;
  const int64_t key_tiles = (shape.seq_k + tile_keys - 1) / tile_keys;
  const uint64_t visit = widths * element + 8 + 8 * problem.head_dim;  // of a row by a tile of keys
  out.cost.bytes = out.cost.minimum_bytes + 8 * rows +
                   attention_bytes_again(main, facts_, shape.sequences * shape.heads, key_tiles,
                                         shape.seq_q * static_cast<int64_t>(visit));
  out.cost.flops = 2 * (3 * uint64_t(problem.head_dim) + 2 * uint64_t(problem.value_dim)) * rows *
                   static_cast<uint64_t>(shape.seq_k);
  const int64_t padded = 3 * main.constant("width") + 2 * main.constant("value_width");
  out.cost.tensor_ops = static_cast<uint64_t>(2 * padded * shape.sequences * shape.heads) *
                        static_cast<uint64_t>(row_tiles * tile_rows * key_tiles * tile_keys);
  out.launches = specs_.size();
  return out;
}

}  // namespace

Result<std::unique_ptr<Work>> make_attention_block_bwd(const Resolved& resolved,
                                                       const DeviceFacts& facts) {
  LATHE_ASSIGN(AttentionRequest request, attention_block_request(resolved));
  const auto& options = resolved.options_as<BlockOptions>();
  request.problem.backward = true;
  LATHE_ASSIGN(const BlockGrid grid, BlockGrid::make(options, facts));
  request.problem.persistent = grid.persistent();
  request.problem.deterministic = options.deterministic;
  AttentionBlockBwdWork::Form form;
  form.batch = is_block_batch(resolved.problem, tensors::q);
  form.first = options.first;
  form.first_keys = options.first || options.first_keys;
  LATHE_ASSIGN(AttentionBlockKernels kernels, attention_block_kernels(request.problem, facts));
  return std::unique_ptr<Work>(
      std::make_unique<AttentionBlockBwdWork>(request, form, grid, facts, std::move(kernels)));
}

}  // namespace lathe
