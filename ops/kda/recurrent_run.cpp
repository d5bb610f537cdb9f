// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda_recurrent behind the plan: one kernel, no workspace.
#include <algorithm>
#include <utility>

#include "codegen/base/invalid.h"
#include "ops/fill.h"
#include "ops/kda/request.h"
#include "templates/params/kda.h"

namespace lathe {
namespace {

// Positions of tokens that are fetched ahead are added in 32 bits.
constexpr int64_t kMostTokens = int64_t{1} << 30;

class KdaRecurrentExecutor final : public Executor {
 public:
  KdaRecurrentExecutor(const KdaRequest& request, const KdaKernels& kernels)
      : request_(request), kernel_(kernels.recurrent) {
    list({&kernel_});
  }

  Result<size_t> workspace_bytes(const Call& call) const override;
  Result<Estimate> estimate(const Call& call) const override;
  Status run(const Call& call) const override;

 private:
  const KernelSpec& spec() const { return *kernel_; }
  const KdaProblem& problem() const { return request_.problem; }
  static KdaShape shape(const Call& call) {
    const Extents& extents = call.extents;
    return {extents[Dim::N], extents[Dim::H], extents[Dim::HV], extents[Dim::B] * extents[Dim::T]};
  }
  // Packed rows of no sequence are padding, which somebody has to write.
  KdaShape grid_shape(KdaShape shape) const {
    if (problem().packed) shape.sequences = std::max<int64_t>(shape.sequences, 1);
    return shape;
  }
  // Nothing to write, neither a row nor a state.
  bool is_empty(const Call& call) const {
    const KdaShape shape = grid_shape(KdaRecurrentExecutor::shape(call));
    const bool states = request_.final_state && call.extents[Dim::N] > 0;
    return shape.sequences == 0 || shape.value_heads == 0 || (shape.rows == 0 && !states);
  }
  // What a problem with open extents leaves to its calls.
  Status check(const Call& call) const;
  KdaRecurrentParams params(const Call& call) const;
  void fill_states(const Call& call, KdaRecurrentParams* p) const;

  KdaRequest request_;
  KernelSlot kernel_;
};

Status KdaRecurrentExecutor::check(const Call& call) const {
  LATHE_TRY(check_kda_extents(call.extents, problem().packed));
  const int64_t tokens = call.extents[Dim::T];
  if (tokens > kMostTokens) {
    return Status(Code::unsupported,
                  text("q has T = ", tokens, "; allowed are 0 to ", kMostTokens));
  }
  KdaShape one = grid_shape(shape(call));
  const int64_t sequences = std::max<int64_t>(std::exchange(one.sequences, 1), 1);
  if (kda_recurrent_blocks(spec(), one) <= kMaxExtent / sequences) return {};
  return Status(Code::unsupported,
                text("v of ", sequences, " sequences and ", one.value_heads,
                     " value heads needs more than ", kMaxExtent, " blocks; split the batch"));
}

Result<size_t> KdaRecurrentExecutor::workspace_bytes(const Call& call) const {
  LATHE_TRY(check(call));
  return size_t{0};
}

void KdaRecurrentExecutor::fill_states(const Call& call, KdaRecurrentParams* p) const {
  const auto& t = call.tensors;
  const bool pool = problem().states != kKdaStatesPlain;
  const Tensor& in = t[pool ? kda_recurrent::state_pool : kda_recurrent::initial_state];
  const Tensor& out = t[pool ? kda_recurrent::state_pool : kda_recurrent::final_state];
  p->state_in = in.data;
  p->state_out = out.data;
  p->in_slot_stride = in.stride[0];
  p->in_head_stride = in.stride[1];
  p->in_row_stride = in.stride[2];
  p->out_slot_stride = out.stride[0];
  p->out_head_stride = out.stride[1];
  p->out_row_stride = out.stride[2];
  if (!pool) return;
  p->state_indices = t[kda_recurrent::state_indices].data;
  p->num_accepted_tokens = t[kda_recurrent::num_accepted_tokens].data;
  p->slots = static_cast<int>(call.extents[Dim::S]);
  p->columns = static_cast<int>(std::max<int64_t>(call.extents[Dim::spec], 0));
}

KdaRecurrentParams KdaRecurrentExecutor::params(const Call& call) const {
  KdaRecurrentParams p = {};
  fill_tensors<kda_recurrent::kTensors>(call, false, &p);
  fill_states(call, &p);
  p.sequences = static_cast<int>(call.extents[Dim::N]);
  p.heads = static_cast<int>(call.extents[Dim::H]);
  p.value_heads = static_cast<int>(call.extents[Dim::HV]);
  p.tokens = static_cast<int>(call.extents[Dim::T]);
  p.scale = request_.scale;
  p.lower_bound = request_.lower_bound;
  p.beta_factor = request_.beta_factor;
  return p;
}

Status KdaRecurrentExecutor::run(const Call& call) const {
  LATHE_TRY(check(call));
  if (is_empty(call)) return {};
  const KdaRecurrentParams p = params(call);
  return kernel_.launch(kda_recurrent_grid(spec(), grid_shape(shape(call))), &p, call.stream);
}

Result<Estimate> KdaRecurrentExecutor::estimate(const Call& call) const {
  LATHE_TRY(check(call));
  Estimate out;
  if (is_empty(call)) return out;
  out.launches = 1;
  out.cost = kda_recurrent_cost(problem(), spec(), shape(call),
                                {request_.initial_state, request_.final_state});
  return out;
}

}  // namespace

Result<std::unique_ptr<Executor>> make_kda_recurrent(const KdaRequest& request,
                                                     const DeviceFacts& facts) {
  LATHE_ASSIGN(const KdaKernels kernels, kda_kernels(request.problem, facts));
  return executor_of<KdaRecurrentExecutor>(request, kernels);
}

}  // namespace lathe
