// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// lse_merge behind the plan: one kernel, no workspace.
#include "codegen/base/invalid.h"
#include "ops/attention/block.h"
#include "ops/attention/merge_kernels.h"
#include "ops/attention/run.h"
#include "ops/fill.h"
#include "templates/params/attention_merge.h"

namespace lathe {
namespace {

class LseMergeExecutor final : public Executor {
 public:
  LseMergeExecutor(const LseMergeProblem& problem, bool packed)
      : problem_(problem), packed_(packed), kernel_(lse_merge_spec(problem)) {
    list({&kernel_});
  }

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
    out.cost = lse_merge_cost(problem_, rows(call), call.extents[Dim::H]);
    return out;
  }

 private:
  int64_t batch(const Call& call) const { return packed_ ? 1 : call.extents[Dim::B]; }
  int64_t tokens(const Call& call) const { return call.extents[packed_ ? Dim::Tq : Dim::Sq]; }
  // Of all heads; every factor is below 2^31, so two of them cannot pass 2^63.
  int64_t rows(const Call& call) const { return batch(call) * tokens(call) * call.extents[Dim::H]; }
  Status check(const Call& call) const;

  LseMergeProblem problem_;
  bool packed_;
  KernelSlot kernel_;
};

Status LseMergeExecutor::check(const Call& call) const {
  LATHE_ASSIGN(const int64_t rows,
               checked_product("out", {batch(call), tokens(call), call.extents[Dim::H]}));
  if (rows <= kMaxExtent) return {};
  return Status(Code::unsupported, text("out has ", rows, " rows over all heads; allowed are 0 to ",
                                        kMaxExtent, ": split the batch"));
}

Status LseMergeExecutor::run(const Call& call) const {
  LATHE_TRY(check(call));
  if (rows(call) == 0) return {};
  LseMergeParams p = {};
  fill_tensors<lse_merge::kTensors>(call, packed_, &p);
  put_strides(attention_strides(call.tensors[lse_merge::block_out], packed_), &p.block_batch_stride,
              &p.block_token_stride, &p.block_head_stride);
  p.rows = static_cast<int>(rows(call));
  p.heads = static_cast<int>(call.extents[Dim::H]);
  p.tokens = static_cast<int>(tokens(call));
  p.value_dim = problem_.value_dim;
  return kernel_.launch(lse_merge_blocks(*kernel_, rows(call)), &p, call.stream);
}

}  // namespace

Status check_lse_merge(const Resolved& resolved) {
  using namespace lse_merge;
  const Shape& form = resolved.problem.tensors[out].shape;
  LATHE_TRY(
      check_form(resolved.problem, is_packed_shape(form), text("since out is ", shape_text(form))));
  if (!resolved.has(block_out) && !resolved.has(sinks) && !resolved.has(rounded)) {
    return invalid(
        "lse_merge has nothing to merge: declare block_out and block_lse, sinks, or rounded");
  }
  return check_head_width("out", "DV", resolved[Dim::DV]);
}

LseMergeRequest merge_step(const AttentionRequest& whole) {
  LseMergeRequest out;
  out.batch = true;
  out.problem.value_dim = whole.problem.value_dim;
  out.problem.sinks = whole.problem.sinks;
  out.problem.rounded = whole.problem.element != Dtype::f32;
  if (out.problem.rounded) out.problem.rounded_type = whole.problem.element;
  return out;
}

Result<std::unique_ptr<Executor>> make_lse_merge(const LseMergeRequest& request) {
  return executor_of<LseMergeExecutor>(request.problem, !request.batch);
}

Result<std::unique_ptr<Executor>> make_lse_merge(const Resolved& resolved, const DeviceFacts&) {
  using namespace lse_merge;
  LATHE_TRY(check_row_alignment(resolved.problem, kRowAlignment));
  LseMergeRequest request;
  request.batch = !is_packed_shape(resolved.problem.tensors[out].shape);
  LseMergeProblem& asked = request.problem;
  asked.block = resolved.has(block_out);
  if (asked.block) asked.block_out = resolved.dtype(block_out);
  asked.sinks = resolved.has(sinks);
  asked.rounded = resolved.has(rounded);
  if (asked.rounded) asked.rounded_type = resolved.dtype(rounded);
  asked.value_dim = static_cast<int>(resolved[Dim::DV]);
  return make_lse_merge(request);
}

}  // namespace lathe
