// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// lse_merge behind the plan: one kernel, no workspace.
#include "codegen/base/invalid.h"
#include "ops/attention/block.h"
#include "ops/attention/merge_kernels.h"
#include "ops/attention/run.h"
#include "templates/params/attention_merge.h"

namespace lathe {
namespace {


class LseMergeWork final : public Work {
 public:
  LseMergeWork(const LseMergeProblem& problem, bool packed)
      : problem_(problem), packed_(packed), specs_{lse_merge_spec(problem)} {}

  const std::vector<KernelSpec>& specs() const override { return specs_; }
  void bind(const std::vector<PlanKernel>& kernels) override { loaded_ = kernels[0].loaded; }
  Result<size_t> workspace_bytes(const Call& call) const override {
    LATHE_TRY(check(call));
    return size_t{0};
  }
  Status run(const Call& call) const override;
  Result<Estimate> estimate(const Call& call) const override {
    LATHE_TRY(check(call));
    Estimate out;
    if (rows(call) == 0) return out;
    out.launches = 1;
    out.cost = lse_merge_cost(problem_, rows(call), call.extents[Letter::H]);
    return out;
  }

 private:
  int64_t batch(const Call& call) const { return packed_ ? 1 : call.extents[Letter::B]; }
  int64_t tokens(const Call& call) const { return call.extents[packed_ ? Letter::Tq : Letter::Sq]; }
  // Of all heads; every factor is below 2^31, so two of them cannot pass 2^63.
  int64_t rows(const Call& call) const {
    return batch(call) * tokens(call) * call.extents[Letter::H];
  }
  Status check(const Call& call) const;
  void fill_strides(const Tensor& tensor, long long* batch, long long* token,
                    long long* head) const;

  LseMergeProblem problem_;
  bool packed_;
  std::vector<KernelSpec> specs_;
  std::shared_ptr<const Kernel> loaded_;
};

Status LseMergeWork::check(const Call& call) const {
  LATHE_ASSIGN(const int64_t rows,
               checked_product("out", {batch(call), tokens(call), call.extents[Letter::H]}));
  if (rows <= kMaxExtent) return {};
  return Status(Code::unsupported, text("out has ", rows, " rows over all heads; allowed are 0 to ",
                                        kMaxExtent, ": split the batch"));
}

void LseMergeWork::fill_strides(const Tensor& tensor, long long* batch, long long* token,
                                long long* head) const {
  const int first = packed_ ? 0 : 1;
  *batch = first ? tensor.stride[0] : 0;
  *token = tensor.stride[first];
  *head = tensor.stride[first + 1];
}

Status LseMergeWork::run(const Call& call) const {
  LATHE_TRY(check(call));
  if (rows(call) == 0) return {};
  const auto& t = call.tensors;
  LseMergeParams p = {};
  p.out = t[lse_merge::out].data;
  p.lse = t[lse_merge::lse].data;
  p.block_out = t[lse_merge::block_out].data;
  p.block_lse = t[lse_merge::block_lse].data;
  p.sinks = t[lse_merge::sinks].data;
  fill_strides(t[lse_merge::out], &p.out_batch_stride, &p.out_token_stride, &p.out_head_stride);
  if (problem_.block) {
    fill_strides(t[lse_merge::block_out], &p.block_batch_stride, &p.block_token_stride,
                 &p.block_head_stride);
  }
  if (problem_.rounded) {
    p.rounded = t[lse_merge::rounded].data;
    fill_strides(t[lse_merge::rounded], &p.rounded_batch_stride, &p.rounded_token_stride,
                 &p.rounded_head_stride);
  }
  p.rows = static_cast<int>(rows(call));
  p.heads = static_cast<int>(call.extents[Letter::H]);
  p.tokens = static_cast<int>(tokens(call));
  p.value_dim = problem_.value_dim;
  const auto blocks = static_cast<unsigned>(lse_merge_blocks(specs_[0], rows(call)));
  return loaded_->launch({blocks, 1, 1}, &p, call.stream);
}

}  // namespace

Status check_lse_merge(const Resolved& resolved) {
  using namespace lse_merge;
  const Shape& form = resolved.problem.tensors[out].shape;
  LATHE_TRY(check_form(resolved.problem, is_packed_shape(form),
                       text("since out is ", shape_text(form))));
  if (!resolved.has(block_out) && !resolved.has(sinks) && !resolved.has(rounded)) {
    return invalid(
        "lse_merge has nothing to merge: declare block_out and block_lse, sinks, or rounded");
  }
  return check_head_width("out", "DV", resolved[Letter::DV]);
}

Result<std::unique_ptr<Work>> make_lse_merge(const Resolved& resolved, const DeviceFacts&) {
  using namespace lse_merge;
  LATHE_TRY(check_row_alignment(resolved.problem, kRowAlignment));
  LseMergeProblem asked;
  asked.block = resolved.has(block_out);
  if (asked.block) asked.block_out = resolved.dtype(block_out);
  asked.sinks = resolved.has(sinks);
  asked.rounded = resolved.has(rounded);
  if (asked.rounded) asked.rounded_type = resolved.dtype(rounded);
  asked.value_dim = static_cast<int>(resolved[Letter::DV]);
  const bool packed = is_packed_shape(resolved.problem.tensors[out].shape);
  return std::unique_ptr<Work>(std::make_unique<LseMergeWork>(asked, packed));
}

}  // namespace lathe
