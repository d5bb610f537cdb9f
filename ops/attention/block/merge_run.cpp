// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements lse_merge behind the plan: one kernel, no workspace.
#include "codegen/base/invalid.h"
#include "ops/attention/block/run.h"
#include "ops/fill.h"
#include "templates/params/attention_merge.h"

namespace lathe {
namespace {

struct MergePlan {
  int64_t tokens = 0, heads = 0, rows = 0;  // rows: of all heads

  int64_t total() const { return 0; }
};

class LseMergeExecutor final : public PlannedExecutor<LseMergeExecutor, MergePlan> {
 public:
  LseMergeExecutor(const LseMergeProblem& problem, bool packed)
      : problem_(problem), packed_(packed), kernel_(lse_merge_spec(problem)) {
    list({&kernel_});
  }

  Result<MergePlan> plan(const Call& call) const {
    const int64_t batch = packed_ ? 1 : call.extents[Dim::B];
    MergePlan out = {call.extents[packed_ ? Dim::Tq : Dim::Sq], call.extents[Dim::H]};
    LATHE_ASSIGN(out.rows, checked_product("out", {batch, out.tokens, out.heads}));
    if (out.rows <= kMaxExtent) return out;
    return unsupported(text("out has ", out.rows, " rows over all heads; allowed are 0 to ",
                            kMaxExtent, ": split the batch"));
  }

  Status launch(const Call& call, const MergePlan& plan) const {
    if (plan.rows == 0) return {};
    LseMergeParams p = {};
    fill_tensors<lse_merge::kTensors>(call, packed_, &p);
    put_strides(attention_strides(call.tensors[lse_merge::block_out], packed_),
                &p.block_batch_stride, &p.block_token_stride, &p.block_head_stride);
    fill_numbers(plan, &p);
    p.value_dim = problem_.value_dim;
    return kernel_.launch(lse_merge_blocks(kernel_.numbers(), plan.rows), &p, call.stream);
  }

  Result<Estimate> estimate_plan(const Call&, const MergePlan& plan) const {
    if (plan.rows == 0) return Estimate{};
    return Estimate{1, lse_merge_cost(problem_, plan.rows, plan.heads)};
  }

 private:
  LseMergeProblem problem_;
  bool packed_;
  NumberedSlot<LseMergeNumbers> kernel_;
};

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

LseMergeProblem merge_step(const AttentionRequest& whole) {
  LseMergeProblem out;
  out.value_dim = whole.problem.value_dim;
  out.sinks = whole.problem.sinks;
  out.rounded = whole.problem.element != Dtype::f32;
  if (out.rounded) out.rounded_type = whole.problem.element;
  return out;
}

MadeExecutor make_lse_merge(const LseMergeProblem& problem, bool batch) {
  return executor_of<LseMergeExecutor>(problem, !batch);
}

MadeExecutor make_lse_merge(const Resolved& resolved, const DeviceFacts&) {
  using namespace lse_merge;
  LseMergeProblem asked;
  asked.block = resolved.has(block_out);
  if (asked.block) asked.block_out = resolved.dtype(block_out);
  asked.sinks = resolved.has(sinks);
  asked.rounded = resolved.has(rounded);
  if (asked.rounded) asked.rounded_type = resolved.dtype(rounded);
  asked.value_dim = static_cast<int>(resolved[Dim::DV]);
  asked.alignment = row_alignment(resolved);
  return make_lse_merge(asked, !is_packed_shape(resolved.problem.tensors[out].shape));
}

}  // namespace lathe
