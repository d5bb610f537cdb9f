// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The plan of sparse_flash_attention: which kernels it holds, their parameters, the launches.
#include "api/sparse_plan.h"

#include <algorithm>

#include "api/attention_params.h"
#include "api/boundary.h"
#include "templates/params/sparse_attention.h"

namespace lathe {
namespace {

namespace of = sparse_attention;

class SparseWork final : public Work {
 public:
  SparseWork(const SparseRequest& request, const SparseKernels& kernels, const DeviceFacts& facts)
      : request_(request), kernels_(kernels), multiprocessors_(facts.multiprocessors) {
    for (const auto* spec : {&kernels_.forward, &kernels_.combine}) {
      if (*spec) specs_.push_back(**spec);
    }
  }

  const std::vector<KernelSpec>& specs() const override { return specs_; }
  void bind(const std::vector<PlanKernel>& kernels) override;
  Result<size_t> workspace_bytes(const Call& call) const override;
  Result<Estimate> estimate(const Call& call) const override;
  Status run(const Call& call) const override;

 private:
  // What the shapes of a call decide.
  struct Launch {
    SparseShape shape;
    int64_t splits = 1;
    SparsePartials partials;
    bool forward = false;  // there is a row to write
  };
  Result<Launch> plan_launch(const Call& call) const;
  const SparseProblem& problem() const { return request_.problem; }
  SparseShape shape(const Call& call) const;
  SparseInputs inputs(const Call& call, const Launch& launch) const;
  SparseForwardParams forward_params(const Call& call, const Launch& launch) const;
  SparseCombineParams combine_params(const Call& call, const Launch& launch) const;
  Status run_forward(const Call& call, const Launch& launch) const;

  SparseRequest request_;
  SparseKernels kernels_;
  int64_t multiprocessors_;
  std::vector<KernelSpec> specs_;
  std::shared_ptr<const Kernel> forward_, combine_;
};

void SparseWork::bind(const std::vector<PlanKernel>& kernels) {
  size_t next = 0;
  if (kernels_.forward) forward_ = kernels[next++].loaded;
  if (kernels_.combine) combine_ = kernels[next++].loaded;
}

SparseShape SparseWork::shape(const Call& call) const {
  const Extents& e = call.extents;
  SparseShape shape;
  shape.sequences = request_.tokens ? 1 : e[Letter::B];
  shape.heads = e[Letter::H], shape.kv_heads = e[Letter::HK];
  shape.seq_q = e[request_.tokens ? Letter::Tq : Letter::Sq];
  shape.seq_k = e[request_.tokens ? Letter::Tk : Letter::Sk];
  shape.topk = e[Letter::topk], shape.block = int64_t{1} << request_.block_shift;
  return shape;
}

Result<SparseWork::Launch> SparseWork::plan_launch(const Call& call) const {
  LATHE_TRY(check_sparse_extents(call.extents, request_.block_shift));
  Launch out;
  out.shape = shape(call);
  const SparseShape& shape = out.shape;
  // Rows of a batch, in 64 bits; blocks are a few for each.
  auto rows = checked_product("q", {shape.sequences, shape.seq_q, shape.heads, kMostSparseSplits});
  LATHE_TRY(rows);
  if (*rows == 0 || !problem().forward) return out;
  out.forward = true;
  out.splits =
      sparse_splits(problem(), *kernels_.forward, shape, multiprocessors_, request_.splits);
  const int64_t blocks = sparse_forward_blocks(*kernels_.forward, shape, out.splits);
  if (std::max(blocks, *rows / kMostSparseSplits / 4) > kMaxExtent) {
    return Status(
        Code::unsupported,
        text("q of ", shape.rows(), " rows and ", shape.heads, " heads, with lists in ", out.splits,
             " parts, needs more than ", kMaxExtent, " blocks; split the rows"));
  }
  if (out.splits == 1) return out;
  LATHE_TRY(checked_product("the workspace",
                            {out.splits, shape.rows(), shape.heads, problem().value_dim + 2, 4}));
  out.partials = sparse_partials(problem(), shape, out.splits);
  return out;
}

Result<size_t> SparseWork::workspace_bytes(const Call& call) const {
  LATHE_ASSIGN(const Launch launch, plan_launch(call));
  return static_cast<size_t>(launch.partials.total);
}

SparseInputs SparseWork::inputs(const Call& call, const Launch& launch) const {
  const auto& t = call.tensors;
  const SparseShape& shape = launch.shape;
  const auto strides = [&](int tensor, long long* batch, long long* token, long long* head) {
    const AttentionStrides found = attention_strides(t[tensor], request_.tokens);
    *batch = found.batch, *token = found.token, *head = found.head;
  };
  SparseInputs in = {};
  in.q = t[of::q].data;
  in.k = t[of::k].data;
  in.v = t[of::v].data;
  in.q_rope = t[of::q_rope].data;
  in.k_rope = t[of::k_rope].data;
  in.indices = t[of::indices].data;
  in.sinks = t[of::sinks].data;
  if (request_.positions) in.q_pos = t[of::q_pos].data;
  if (problem().packed) {
    in.cu_seqlens_q = t[of::cu_seqlens_q].data;
    in.key_starts = t[of::cu_seqlens_k].data;
    in.key_ends = t[of::cu_seqlens_k].data + bytes_of(problem().cu_seqlens);
    in.sequences = static_cast<int>(call.extents[Letter::N]);
  } else {
    in.sequences = static_cast<int>(shape.sequences);
  }
  strides(of::q, &in.q_batch_stride, &in.q_token_stride, &in.q_head_stride);
  strides(of::k, &in.k_batch_stride, &in.k_token_stride, &in.k_head_stride);
  strides(of::v, &in.v_batch_stride, &in.v_token_stride, &in.v_head_stride);
  strides(of::q_rope, &in.q_rope_batch_stride, &in.q_rope_token_stride, &in.q_rope_head_stride);
  strides(of::k_rope, &in.k_rope_batch_stride, &in.k_rope_token_stride, &in.k_rope_head_stride);
  strides(of::indices, &in.indices_batch_stride, &in.indices_token_stride, &in.indices_head_stride);
  in.heads = static_cast<int>(shape.heads), in.kv_heads = static_cast<int>(shape.kv_heads);
  in.seq_q = static_cast<int>(shape.seq_q), in.seq_k = static_cast<int>(shape.seq_k);
  in.head_dim = problem().head_dim, in.rope_dim = problem().rope_dim;
  in.value_dim = problem().value_dim;
  in.topk = static_cast<int>(shape.topk), in.block_shift = request_.block_shift;
  in.absolute = request_.absolute, in.causal = request_.causal;
  in.scale = request_.scale;
  return in;
}

SparseForwardParams SparseWork::forward_params(const Call& call, const Launch& launch) const {
  const auto& t = call.tensors;
  SparseForwardParams p = {};
  p.in = inputs(call, launch);
  p.in.head_tiles = static_cast<int>(sparse_head_tiles(*kernels_.forward, launch.shape));
  p.out = t[of::out].data;
  p.softmax_max = t[of::softmax_max].data;
  p.softmax_sum = t[of::softmax_sum].data;
  p.lse = t[of::lse].data;
  if (launch.splits > 1) {
    p.partial_out = call.workspace;
    p.partial_max = call.workspace + launch.partials.maxima;
    p.partial_sum = call.workspace + launch.partials.sums;
  }
  const AttentionStrides out = attention_strides(t[of::out], request_.tokens);
  p.out_batch_stride = out.batch, p.out_token_stride = out.token, p.out_head_stride = out.head;
  p.splits = static_cast<int>(launch.splits);
  return p;
}

SparseCombineParams SparseWork::combine_params(const Call& call, const Launch& launch) const {
  const SparseForwardParams of_parts = forward_params(call, launch);
  SparseCombineParams p = {};
  p.partial_out = of_parts.partial_out;
  p.partial_max = of_parts.partial_max;
  p.partial_sum = of_parts.partial_sum;
  p.sinks = of_parts.in.sinks;
  p.out = of_parts.out;
  p.softmax_max = of_parts.softmax_max;
  p.softmax_sum = of_parts.softmax_sum;
  p.lse = of_parts.lse;
  p.out_batch_stride = of_parts.out_batch_stride;
  p.out_token_stride = of_parts.out_token_stride;
  p.out_head_stride = of_parts.out_head_stride;
  p.rows = launch.shape.rows();
  p.seq_q = of_parts.in.seq_q;
  p.heads = of_parts.in.heads, p.kv_heads = of_parts.in.kv_heads;
  p.value_dim = problem().value_dim;
  p.splits = of_parts.splits;
  return p;
}

Status SparseWork::run_forward(const Call& call, const Launch& launch) const {
  const auto grid = [](int64_t blocks) { return Grid{static_cast<unsigned>(blocks), 1, 1}; };
  const SparseForwardParams p = forward_params(call, launch);
  LATHE_TRY(
      forward_->launch(grid(sparse_forward_blocks(*kernels_.forward, launch.shape, launch.splits)),
                       &p, call.stream));
  if (launch.splits == 1) return {};
  const SparseCombineParams combine = combine_params(call, launch);
  return combine_->launch(grid(sparse_combine_blocks(*kernels_.combine, launch.shape)), &combine,
                          call.stream);
}

Status SparseWork::run(const Call& call) const {
  LATHE_ASSIGN(const Launch launch, plan_launch(call));
  return launch.forward ? run_forward(call, launch) : Status();
}

Result<Estimate> SparseWork::estimate(const Call& call) const {
  LATHE_ASSIGN(const Launch launch, plan_launch(call));
  Estimate out;
  if (!launch.forward) return out;
  out.launches = launch.splits > 1 ? 2 : 1;
  out.cost = sparse_forward_cost(problem(), *kernels_.forward, launch.shape, launch.splits);
  return out;
}

}  // namespace

Result<std::unique_ptr<Work>> make_sparse(const SparseRequest& request, const DeviceFacts& facts) {
  if (request.problem.backward || request.problem.dsinks) {
    return Status(Code::unsupported,
                  "sparse_flash_attention: dout is declared; gradients have no kernels");
  }
  LATHE_ASSIGN(const SparseKernels kernels, sparse_kernels(request.problem, facts));
  return std::unique_ptr<Work>(std::make_unique<SparseWork>(request, kernels, facts));
}

}  // namespace lathe
