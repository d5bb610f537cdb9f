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

constexpr int kRowAlignment = 16;  // rows are read and written in 16-byte pieces

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

  LseMergeProblem problem_;
  bool packed_;
  TensorFields fields_ = TensorFields::of("lse_merge");
  KernelSlot kernel_;
};

Status LseMergeExecutor::check(const Call& call) const {
  LATHE_ASSIGN(const int64_t rows,
               checked_product("out", {batch(call), tokens(call), call.extents[Letter::H]}));
  if (rows <= kMaxExtent) return {};
  return Status(Code::unsupported, text("out has ", rows, " rows over all heads; allowed are 0 to ",
                                        kMaxExtent, ": split the batch"));
}

Status LseMergeExecutor::run(const Call& call) const {
  LATHE_TRY(check(call));
  if (rows(call) == 0) return {};
  LseMergeParams p = {};
  fill_tensors(fields_, call, packed_, &p);
  put_strides(attention_strides(call.tensors[lse_merge::block_out], packed_), &p.block_batch_stride,
              &p.block_token_stride, &p.block_head_stride);
  p.rows = static_cast<int>(rows(call));
  p.heads = static_cast<int>(call.extents[Letter::H]);
  p.tokens = static_cast<int>(tokens(call));
  p.value_dim = problem_.value_dim;
  return kernel_.launch(lse_merge_blocks(*kernel_, rows(call)), &p, call.stream);
}

// Either every tensor with tokens is packed or none is.
Status check_form(const lathe_problem& problem) {
  const Shape& out = problem.tensors[lse_merge::out].shape;
  const bool packed = has_letter(out, Letter::Tq);
  for (const int i :
       {lse_merge::block_out, lse_merge::block_lse, lse_merge::lse, lse_merge::rounded}) {
    const Declared& declared = problem.tensors[i];
    if (!declared.given || has_letter(declared.shape, Letter::Tq) == packed) continue;
    return invalid(text(problem.op->info.tensors[i].name, " has shape ", shape_text(declared.shape),
                        ", but out has ", shape_text(out),
                        "; allowed are both with a batch or both packed"));
  }
  return {};
}

}  // namespace

Status check_lse_merge(const lathe_problem& problem, const Extents& promised) {
  LATHE_TRY(check_form(problem));
  const bool rounded = problem.has(lse_merge::rounded);
  const auto& wanted = problem.options[find_option(*problem.op, "output_rounded")];
  if (wanted && (*wanted == "1") != rounded) {
    return invalid(text("option output_rounded is ", *wanted, ", but rounded is ",
                        rounded ? "" : "not ", "declared"));
  }
  if (!problem.has(lse_merge::block_out) && !problem.has(lse_merge::sinks) && !rounded) {
    return invalid(
        "lse_merge has nothing to merge: declare block_out and block_lse, sinks, or rounded");
  }
  return check_head_width("out", "DV", promised[Letter::DV]);
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

Result<std::unique_ptr<Executor>> make_lse_merge(const lathe_problem& problem,
                                                 const Extents& promised, const DeviceFacts&) {
  if (problem.alignment < kRowAlignment) {
    return Status(Code::unsupported, text("alignment is ", problem.alignment, "; lse_merge needs ",
                                          kRowAlignment, " bytes (lathe_problem_alignment)"));
  }
  LseMergeRequest request;
  request.batch = !has_letter(problem.tensors[lse_merge::out].shape, Letter::Tq);
  LseMergeProblem& asked = request.problem;
  asked.block = problem.has(lse_merge::block_out);
  if (asked.block) asked.block_out = problem.tensors[lse_merge::block_out].dtype;
  asked.sinks = problem.has(lse_merge::sinks);
  asked.rounded = problem.has(lse_merge::rounded);
  if (asked.rounded) asked.rounded_type = problem.tensors[lse_merge::rounded].dtype;
  asked.value_dim = static_cast<int>(promised[Letter::DV]);
  return make_lse_merge(request);
}

}  // namespace lathe
