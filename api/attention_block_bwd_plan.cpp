// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// flash_attention_block_bwd behind the plan: its launches, in order, are attention_block_prepare,
// with positions attention_positions, attention_block_backward, and, deterministic, the finish.
#include <algorithm>

#include "api/attention_block.h"
#include "api/boundary.h"
#include "templates/params/attention_backward.h"

namespace lathe {
namespace {

namespace tensors = attention_block_bwd;

class AttentionBlockBwdWork final : public Work {
 public:
  AttentionBlockBwdWork(const AttentionRequest& request, const DeviceFacts& facts,
                        AttentionBlockKernels kernels)
      : request_(request), facts_(facts), kernels_(std::move(kernels)) {
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
  // A call with its grids; empty if there is nothing to add to.
  struct Laid {
    AttentionShape shape;
    bool empty = false;
    AttentionBlockBackwardLaunch launch;
  };
  Result<Laid> lay_out(const Call& call) const;
  AttentionBlockPrepareParams prepare_params(const Call& call, const Laid& laid) const;
  AttentionBlockBackwardParams params(const Call& call, const Laid& laid) const;
  AttentionBlockFinishParams finish_params(const Call& call, const Laid& laid) const;

  AttentionRequest request_;
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
  backward_ = take(kernels_.backward);
  finish_ = take(kernels_.finish);
}

Result<AttentionBlockBwdWork::Laid> AttentionBlockBwdWork::lay_out(const Call& call) const {
  Laid laid;
  laid.shape = block_shape(call.extents);
  LATHE_TRY(check_block_shape(laid.shape));
  laid.empty = laid.shape.heads == 0 || laid.shape.seq_q == 0 || laid.shape.seq_k == 0;
  if (laid.empty) return laid;
  LATHE_ASSIGN(laid.launch,
               attention_block_backward_launch(request_.problem, kernels_, facts_, laid.shape));
  const int64_t most =
      std::max({laid.launch.prepare_blocks, laid.launch.main_blocks, laid.launch.finish_blocks});
  if (most <= kMaxExtent) return laid;
  return Status(Code::unsupported,
                text("q of ", laid.shape.heads, " heads and ", laid.shape.seq_q,
                     " tokens needs more than ", kMaxExtent, " blocks; split the heads"));
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
  return p;
}

void fill_strides(const Tensor& tensor, long long* token, long long* head) {
  *token = tensor.stride[0];
  *head = tensor.stride[1];
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
  fill_strides(t[tensors::q], &b.q_token_stride, &b.q_head_stride);
  fill_strides(t[tensors::k], &b.k_token_stride, &b.k_head_stride);
  fill_strides(t[tensors::v], &b.v_token_stride, &b.v_head_stride);
  fill_strides(t[tensors::dout], &b.dout_token_stride, &b.dout_head_stride);
  fill_strides(t[tensors::dq], &b.dq_token_stride, &b.dq_head_stride);
  fill_strides(t[tensors::dk], &b.dk_token_stride, &b.dk_head_stride);
  fill_strides(t[tensors::dv], &b.dv_token_stride, &b.dv_head_stride);
  b.sequences = 1;
  b.heads = static_cast<int>(shape.heads);
  b.kv_heads = static_cast<int>(shape.kv_heads);
  b.seq_q = b.rows = static_cast<int>(shape.seq_q);
  b.seq_k = static_cast<int>(shape.seq_k);
  b.head_dim = request_.problem.head_dim;
  b.value_dim = request_.problem.value_dim;
  if (request_.problem.deterministic) {
    b.dq = call.workspace + laid.launch.sums;
    b.dq_head_stride = b.head_dim;
    b.dq_token_stride = shape.heads * b.head_dim;
    b.dq_slice_stride = shape.seq_q * b.dq_token_stride;
  }
  b.window_left = block_window(request_.window_left);
  b.window_right = block_window(request_.window_right);
  b.slices = static_cast<int>(laid.launch.slices);
  b.softmax_scale = request_.softmax_scale;
  b.softcap = request_.softcap;
  p.pairs = t[tensors::pairs].data;
  p.q_positions = t[tensors::q_pos].data;
  p.k_positions = t[tensors::k_pos].data;
  p.row_ranges = call.workspace + laid.launch.ranges;
  const int64_t pairs = call.extents[Letter::NP];
  p.pair_count = static_cast<int>(pairs == kUnknown ? 0 : pairs);
  return p;
}

AttentionBlockFinishParams AttentionBlockBwdWork::finish_params(const Call& call,
                                                                const Laid& laid) const {
  const AttentionShape& shape = laid.shape;
  AttentionBlockFinishParams p = {};
  p.sums = call.workspace + laid.launch.sums;
  p.dq = call.tensors[tensors::dq].data;
  fill_strides(call.tensors[tensors::dq], &p.token_stride, &p.head_stride);
  p.heads = static_cast<int>(shape.heads);
  p.head_dim = request_.problem.head_dim;
  p.slice_stride = shape.seq_q * shape.heads * p.head_dim;
  p.chunks = p.slice_stride / 4;
  p.slices = static_cast<int>(laid.launch.slices);
  p.softmax_scale = request_.softmax_scale;
  return p;
}

Status AttentionBlockBwdWork::run(const Call& call) const {
  LATHE_ASSIGN(const Laid laid, lay_out(call));
  if (laid.empty) return {};
  const auto blocks = [](int64_t count) { return Grid{static_cast<unsigned>(count), 1, 1}; };
  const AttentionBlockPrepareParams first = prepare_params(call, laid);
  LATHE_TRY(prepare_->launch(blocks(laid.launch.prepare_blocks), &first, call.stream));
  if (positions_) {
    LATHE_TRY(find_position_ranges(
        *positions_, *kernels_.positions, call.tensors[tensors::q_pos].data, laid.shape.seq_q,
        kernels_.backward->constant("m"), call.workspace + laid.launch.ranges, call.stream));
  }
  const AttentionBlockBackwardParams p = params(call, laid);
  LATHE_TRY(backward_->launch(blocks(laid.launch.main_blocks), &p, call.stream));
  if (!finish_) return {};
  const AttentionBlockFinishParams last = finish_params(call, laid);
  return finish_->launch(blocks(laid.launch.finish_blocks), &last, call.stream);
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
  const uint64_t rows = shape.seq_q * shape.heads, keys = shape.seq_k * shape.kv_heads;
  // q, dout, lse and delta, dq in and out; k and v, dk and dv in and out.
  out.cost.minimum_bytes =
      rows * (widths * element + 8 + 8 * problem.head_dim) + keys * widths * (element + 8);
  const KernelSpec& main = *kernels_.backward;
  const uint64_t tiles = (shape.seq_k + main.constant("n") - 1) / main.constant("n");
  const uint64_t visit = widths * element + 8 + 8 * problem.head_dim;  // of a row by a tile of keys
  out.cost.bytes = rows * (8 + tiles * visit) + keys * widths * (element + 8);
  out.cost.flops = 2 * (3 * uint64_t(problem.head_dim) + 2 * uint64_t(problem.value_dim)) * rows *
                   static_cast<uint64_t>(shape.seq_k);
  out.launches = specs_.size();
  return out;
}

}  // namespace

Result<std::unique_ptr<Work>> make_attention_block_bwd(const lathe_problem& problem,
                                                       const Extents& promised,
                                                       const DeviceFacts& facts) {
  LATHE_ASSIGN(AttentionRequest request, attention_block_request(problem, promised));
  request.problem.backward = true;
  request.problem.deterministic = problem.option("deterministic") == "1";
  LATHE_ASSIGN(AttentionBlockKernels kernels, attention_block_kernels(request.problem, facts));
  return std::unique_ptr<Work>(
      std::make_unique<AttentionBlockBwdWork>(request, facts, std::move(kernels)));
}

}  // namespace lathe
