// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The plan of flash_attention: parameters and the launch.
#include "api/attention_plan.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "api/attention_snippets.h"
#include "api/boundary.h"
#include "templates/params/attention.h"

namespace lathe {
namespace {

// Positions and windows are added in 32 bits.
constexpr int64_t kMostTokens = int64_t{1} << 30;

class AttentionWork final : public Work {
 public:
  AttentionWork(const AttentionRequest& request, const AttentionKernels& kernels)
      : request_(request) {
    if (kernels.mask_blocks) specs_.push_back(*kernels.mask_blocks);
    specs_.push_back(*kernels.forward);
  }

  const std::vector<KernelSpec>& specs() const override { return specs_; }
  void bind(const std::vector<PlanKernel>& kernels) override {
    if (kernels.size() > 1) mask_blocks_ = kernels.front().loaded;
    forward_ = kernels.back().loaded;
  }
  Result<size_t> workspace_bytes(const Call& call) const override;
  Result<Estimate> estimate(const Call& call) const override;
  Status run(const Call& call) const override;

 private:
  const KernelSpec& spec() const { return specs_.back(); }
  bool listed() const { return specs_.size() > 1; }
  AttentionShape shape(const Call& call) const;
  // No row to write: nothing is launched.
  bool is_empty(const AttentionShape& shape) const {
    return grid_shape(shape).sequences == 0 || shape.heads == 0 || shape.seq_q == 0;
  }
  // Packed rows of no sequence are padding, which somebody has to write.
  AttentionShape grid_shape(AttentionShape shape) const {
    if (request_.problem.packed) shape.sequences = std::max<int64_t>(shape.sequences, 1);
    return shape;
  }
  // What a problem with open extents leaves to its calls.
  Status check(const AttentionShape& shape) const;
  AttentionForwardParams params(const Call& call, const AttentionShape& shape) const;
  void fill_strides(const Tensor& tensor, long long* batch, long long* token,
                    long long* head) const;

  AttentionRequest request_;
  std::vector<KernelSpec> specs_;
  std::shared_ptr<const Kernel> mask_blocks_, forward_;
};

AttentionShape AttentionWork::shape(const Call& call) const {
  const bool packed = request_.problem.packed;
  const Extents& extents = call.extents;
  return {extents[packed ? Letter::N : Letter::B], extents[Letter::H], extents[Letter::HK],
          extents[packed ? Letter::Tq : Letter::Sq], extents[packed ? Letter::Tk : Letter::Sk]};
}

Status AttentionWork::check(const AttentionShape& shape) const {
  LATHE_TRY(check_heads(shape.heads, shape.kv_heads));
  const bool packed = request_.problem.packed;
  for (const auto& [name, letter, tokens] : {std::tuple("q", packed ? "Tq" : "Sq", shape.seq_q),
                                             std::tuple("k", packed ? "Tk" : "Sk", shape.seq_k)}) {
    if (tokens <= kMostTokens) continue;
    return Status(Code::unsupported,
                  text(name, " has ", letter, " = ", tokens, "; allowed are 0 to ", kMostTokens));
  }
  if (is_empty(shape)) return {};
  AttentionShape one = grid_shape(shape);
  const int64_t sequences = std::exchange(one.sequences, 1);
  if (attention_forward_blocks(spec(), one) <= kMaxExtent / sequences) return {};
  return Status(Code::unsupported, text("q of ", shape.sequences, " sequences, ", shape.heads,
                                        " heads and ", shape.seq_q, " tokens needs more than ",
                                        kMaxExtent, " blocks; split the batch"));
}

Result<size_t> AttentionWork::workspace_bytes(const Call& call) const {
  const AttentionShape extent = shape(call);
  LATHE_TRY(check(extent));
  Sections sections;
  if (listed() && !is_empty(extent)) {
    LATHE_TRY(mask_lists(request_.problem, spec(), grid_shape(extent), &sections));
  }
  return sections.total();
}

void AttentionWork::fill_strides(const Tensor& tensor, long long* batch, long long* token,
                                 long long* head) const {
  const int first = request_.problem.packed ? 0 : 1;
  *batch = first ? tensor.stride[0] : 0;
  *token = tensor.stride[first];
  *head = tensor.stride[first + 1];
}

AttentionForwardParams AttentionWork::params(const Call& call, const AttentionShape& shape) const {
  const auto& t = call.tensors;
  AttentionForwardParams p = {};
  p.q = t[attention::q].data;
  p.k = t[attention::k].data;
  p.v = t[attention::v].data;
  p.cu_seqlens_q = t[attention::cu_seqlens_q].data;
  p.cu_seqlens_k = t[attention::cu_seqlens_k].data;
  p.alibi_slopes = t[attention::alibi_slopes].data;
  p.sinks = t[attention::sinks].data;
  p.out = t[attention::out].data;
  p.lse = t[attention::lse].data;
  fill_strides(t[attention::q], &p.q_batch_stride, &p.q_token_stride, &p.q_head_stride);
  fill_strides(t[attention::k], &p.k_batch_stride, &p.k_token_stride, &p.k_head_stride);
  fill_strides(t[attention::v], &p.v_batch_stride, &p.v_token_stride, &p.v_head_stride);
  fill_strides(t[attention::out], &p.out_batch_stride, &p.out_token_stride, &p.out_head_stride);
  p.alibi_batch_stride = request_.alibi_rows ? shape.heads : 0;
  p.sequences = static_cast<int>(shape.sequences);
  p.heads = static_cast<int>(shape.heads);
  p.kv_heads = static_cast<int>(shape.kv_heads);
  p.seq_q = static_cast<int>(shape.seq_q);
  p.seq_k = static_cast<int>(shape.seq_k);
  p.head_dim = request_.problem.head_dim;
  p.value_dim = request_.problem.value_dim;
  // A window that cuts nothing is none, so that sums of positions and windows stay small.
  const int64_t left = request_.window_left, right = request_.window_right;
  p.window_left = static_cast<int>(left >= shape.seq_k ? -1 : left);
  p.window_right = static_cast<int>(right > 0 && right >= shape.seq_q ? -1 : right);
  p.tiles = static_cast<int>(attention_tiles(spec(), shape));
  p.softmax_scale = request_.softmax_scale;
  p.softcap = request_.softcap;
  p.captures = captures_of(request_, call);
  return p;
}

Status AttentionWork::run(const Call& call) const {
  const AttentionShape extent = shape(call);
  LATHE_TRY(check(extent));
  if (is_empty(extent)) return {};
  AttentionForwardParams p = params(call, extent);
  const Grid grid = attention_forward_grid(spec(), grid_shape(extent));
  if (listed()) {
    Sections sections;
    LATHE_ASSIGN(const MaskLists lists,
                 mask_lists(request_.problem, spec(), grid_shape(extent), &sections));
    p.visits = call.workspace + lists.entries;
    p.visit_counts = call.workspace + lists.counts;
    p.visits_stride = lists.stride;
    LATHE_TRY(mask_blocks_->launch(grid, &p, call.stream));
  }
  return forward_->launch(grid, &p, call.stream);
}

// Packed lengths are on the device: the estimate takes them as even.
Result<Estimate> AttentionWork::estimate(const Call& call) const {
  const AttentionShape extent = shape(call);
  LATHE_TRY(check(extent));
  Estimate out;
  if (is_empty(extent)) return out;
  std::vector<AttentionMask> sequences;
  const int64_t parts = request_.problem.packed ? extent.sequences : 1;
  for (int64_t b = 0; b < extent.sequences; ++b) {
    const int64_t part = request_.problem.packed ? b : 0;
    const auto length = [&](int64_t tokens) {
      return tokens / parts + (part < tokens % parts ? 1 : 0);
    };
    sequences.push_back(
        {length(extent.seq_q), length(extent.seq_k), request_.window_left, request_.window_right});
  }
  const AttentionCost cost = attention_forward_cost(request_.problem, spec(), extent, sequences);
  out.launches = specs_.size();
  out.cost = {cost.minimum_bytes, cost.bytes, cost.flops};
  return out;
}

}  // namespace

Result<std::unique_ptr<Work>> make_attention(AttentionRequest request, const DeviceFacts& facts) {
  LATHE_ASSIGN(const AttentionTile tile, attention_choose(request.problem, facts));
  const bool packed = request.problem.packed;
  if (request.ratio != kUnknown && (packed || request.queries != kUnknown)) {
    request.problem.pack_gqa =
        attention_pack_gqa(request.queries, request.ratio, tile.rows, packed);
  }
  LATHE_ASSIGN(const AttentionKernels kernels, attention_kernels(request.problem, facts));
  return std::unique_ptr<Work>(std::make_unique<AttentionWork>(request, kernels));
}

}  // namespace lathe
