// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements flash_attention over codes of e4m3: they become tensors of the workspace, over which
// the plan of another dtype runs.
#include "codegen/base/integers.h"
#include "codegen/base/invalid.h"
#include "ops/attention/kernels.h"
#include "ops/attention/params.h"
#include "ops/attention/run.h"
#include "templates/params/attention_widen.h"

namespace lathe {
namespace {

constexpr int kThreads = 128, kCodes = 16;  // of a thread
constexpr int kNarrow[] = {attention::q, attention::k, attention::v};
constexpr int kScales[] = {attention::q_scale, attention::k_scale, attention::v_scale};

// Holds where the tensors lie in the workspace, behind that of the plan over them.
struct NarrowPlan {
  int64_t inner = 0, workspace = 0;  // bytes
  int64_t at[3] = {}, pieces[3] = {};
  int64_t total() const { return workspace; }
};

class NarrowAttention final : public PlannedExecutor<NarrowAttention, NarrowPlan> {
 public:
  NarrowAttention(const AttentionRequest& request, std::unique_ptr<Executor> inner)
      : request_(request), inner_(std::move(inner)), widen_(attention_widen_spec(request.problem)) {
    list({&widen_});
    list(*inner_);
  }

  Result<NarrowPlan> plan(const Call& call) const {
    const Extents& e = call.extents;
    LATHE_TRY(check_scale("q_scale", e[Dim::q_scales], "H", e[Dim::H]));
    LATHE_TRY(check_scale("k_scale", e[Dim::k_scales], "HK", e[Dim::HK]));
    LATHE_TRY(check_scale("v_scale", e[Dim::v_scales], "HK", e[Dim::HK]));
    NarrowPlan out;
    LATHE_ASSIGN(const size_t inner, inner_->workspace_bytes(call));
    out.inner = static_cast<int64_t>(inner);
    WorkspaceLayout layout;
    layout.add({out.inner, 1});
    for (int i = 0; i < 3; ++i) {
      LATHE_ASSIGN(const int64_t codes,
                   checked_product("a tensor", {rows(call, i), heads(call, i), width(i)}));
      out.at[i] = layout.add({codes, bytes_of(request_.problem.element)});
      out.pieces[i] = codes / kCodes;
    }
    out.workspace = layout.total();
    int64_t blocks = 0;
    for (const int64_t pieces : out.pieces) blocks += ceil_div(pieces, kThreads);
    if (blocks <= kMaxExtent) return out;
    return unsupported(text("q, k and v need ", blocks, " blocks to be widened; allowed are up to ",
                            kMaxExtent, "; split the batch"));
  }

  Status launch(const Call& call, const NarrowPlan& plan) const {
    AttentionWidenParams p = {};
    Call wide = call;
    int64_t blocks = 0;
    for (int i = 0; i < 3; ++i) {
      const Tensor& from = call.tensors[kNarrow[i]];
      const Tensor& scale = call.tensors[kScales[i]];
      const AttentionStrides strides = attention_strides(from, request_.problem.packed);
      char* const to = call.workspace + plan.at[i];
      p.tensor[i] = {from.data,
                     scale.data,
                     to,
                     strides.batch,
                     strides.token,
                     strides.head,
                     plan.pieces[i],
                     static_cast<int>(std::max<int64_t>(tokens(call, i), 1)),
                     static_cast<int>(heads(call, i)),
                     static_cast<int>(width(i)),
                     scale.extent[0] > 1 ? 1 : 0};
      p.blocks[i] = ceil_div(plan.pieces[i], kThreads);
      blocks += p.blocks[i];
      make_dense(to, &wide.tensors[kNarrow[i]]);
    }
    if (blocks > 0) LATHE_TRY(widen_.launch(blocks, &p, call.stream));
    wide.workspace_bytes = static_cast<size_t>(plan.inner);
    return inner_->run(wide);
  }

  Result<Estimate> estimate_plan(const Call& call, const NarrowPlan& plan) const {
    LATHE_ASSIGN(Estimate out, inner_->estimate(call));
    uint64_t codes = 0;
    for (const int64_t pieces : plan.pieces) codes += static_cast<uint64_t>(pieces) * kCodes;
    const auto element = static_cast<uint64_t>(bytes_of(request_.problem.element));
    out.launches += 1;
    out.cost.bytes += codes * (1 + element);
    return out;
  }

 private:
  // Rows without gaps, in the tensor's own shape.
  void make_dense(char* data, Tensor* tensor) const {
    tensor->data = data;
    int64_t stride = 1;
    for (int d = request_.problem.packed ? 2 : 3; d >= 0; --d) {
      tensor->stride[static_cast<size_t>(d)] = stride;
      stride *= tensor->extent[static_cast<size_t>(d)];
    }
  }
  int64_t tokens(const Call& call, int i) const {  // of a sequence, or packed of all
    const Extents& e = call.extents;
    if (request_.problem.packed) return e[i == 0 ? Dim::Tq : Dim::Tk];
    return e[i == 0 ? Dim::Sq : Dim::Sk];
  }
  int64_t rows(const Call& call, int i) const {
    return tokens(call, i) * (request_.problem.packed ? 1 : call.extents[Dim::B]);
  }
  static int64_t heads(const Call& call, int i) { return call.extents[i == 0 ? Dim::H : Dim::HK]; }
  int64_t width(int i) const {
    return i == 2 ? request_.problem.value_dim : request_.problem.head_dim;
  }

  AttentionRequest request_;
  std::unique_ptr<Executor> inner_;
  KernelSlot widen_;
};

}  // namespace

KernelSpec attention_widen_spec(const AttentionProblem& problem) {
  KernelSpec spec = KernelSpec::of(
      LATHE_TEMPLATE("attention", "attention_widen", AttentionWidenParams, blocks), kThreads);
  spec.add({Constant::type("element", "Element", problem.element)});
  add_alignment(problem.alignment, &spec);
  return spec;
}

MadeExecutor make_narrow_attention(const AttentionRequest& request, const DeviceFacts& facts) {
  // The tensors of the workspace are aligned whatever the codes are, and out is as the caller's.
  LATHE_ASSIGN(auto inner, make_attention(request, facts));
  return executor_of<NarrowAttention>(request, std::move(inner));
}

}  // namespace lathe
