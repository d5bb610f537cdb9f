// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements kda_recurrent behind the plan: one kernel, no workspace.
#include <algorithm>
#include <utility>

#include "codegen/base/invalid.h"
#include "ops/fill.h"
#include "ops/kda/request.h"
#include "templates/params/kda.h"

namespace lathe {
// States are of a pool or not.
template <>
inline constexpr auto kOtherPointers<kda_recurrent::kTensors, KdaRecurrentParams> = std::tuple(
    &KdaRecurrentParams::state_indices, &KdaRecurrentParams::source_indices,
    &KdaRecurrentParams::has_initial_state, &KdaRecurrentParams::num_accepted_tokens,
    &KdaRecurrentParams::state_in, &KdaRecurrentParams::state_out, &KdaRecurrentParams::ring_k,
    &KdaRecurrentParams::ring_u, &KdaRecurrentParams::ring_g, &KdaRecurrentParams::ring_count);

namespace {

// Positions of tokens that are fetched ahead are added in 32 bits.
constexpr int64_t kMostTokens = int64_t{1} << 30;

struct RecurrentPlan {
  KdaShape shape, grid;  // the grid is that of at least one sequence if they are packed
  bool empty = false;    // nothing to write, neither a row nor a state

  int64_t total() const { return 0; }
};

class KdaRecurrentExecutor final : public PlannedExecutor<KdaRecurrentExecutor, RecurrentPlan> {
 public:
  KdaRecurrentExecutor(const KdaRequest& request, KernelSpec kernel)
      : request_(request), kernel_(std::move(kernel)) {
    if (problem().states == kKdaStatesRings) append_ = kda_ring_append_spec(*kernel_);
    list({&kernel_, &append_});
  }

  Result<RecurrentPlan> plan(const Call& call) const;
  Status launch(const Call& call, const RecurrentPlan& plan) const;
  Result<Estimate> estimate_plan(const Call& call, const RecurrentPlan& plan) const;

 private:
  const KernelSpec& spec() const { return *kernel_; }
  const KdaProblem& problem() const { return request_.problem; }
  bool writes_states(const Call& call) const;
  KdaRecurrentParams params(const Call& call, const RecurrentPlan& plan) const;
  void fill_states(const Call& call, KdaRecurrentParams* p) const;

  KdaRequest request_;
  NumberedSlot<KdaRecurrentNumbers> kernel_;
  KernelSlot append_;  // kda_ring_append, with rings
};

// Whether a call without tokens writes states: those of slots change only where they come from
// elsewhere.
bool KdaRecurrentExecutor::writes_states(const Call& call) const {
  if (problem().states == kKdaStatesPlain) return request_.final_state;
  const bool elsewhere = problem().states == kKdaStatesColumns ||
                         call.tensors[kda_recurrent::source_indices].data != nullptr ||
                         call.tensors[kda_recurrent::has_initial_state].data != nullptr;
  return request_.update_state && elsewhere;
}

Result<RecurrentPlan> KdaRecurrentExecutor::plan(const Call& call) const {
  LATHE_TRY(check_kda_extents(call.extents, problem().packed));
  const Extents& extents = call.extents;
  const int64_t tokens = extents[Dim::T];
  if (tokens > kMostTokens) {
    return unsupported(text("q has T = ", tokens, "; allowed are 0 to ", kMostTokens));
  }
  RecurrentPlan out;
  out.shape = {extents[Dim::N], extents[Dim::H], extents[Dim::HV], extents[Dim::B] * tokens};
  // Packed rows of no sequence are padding, which somebody has to write.
  out.grid = out.shape;
  if (problem().packed) out.grid.sequences = std::max<int64_t>(out.grid.sequences, 1);
  const bool states = writes_states(call) && out.shape.sequences > 0;
  out.empty =
      out.grid.sequences == 0 || out.grid.value_heads == 0 || (out.grid.rows == 0 && !states);
  KdaShape one = out.grid;
  const int64_t sequences = std::max<int64_t>(std::exchange(one.sequences, 1), 1);
  if (kda_recurrent_blocks(kernel_.numbers(), one) <= kMaxExtent / sequences) return out;
  return unsupported(text("v of ", sequences, " sequences and ", one.value_heads,
                          " value heads needs more than ", kMaxExtent, " blocks; split the batch"));
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
  if (!request_.update_state) p->state_out = nullptr;
  p->null_slot = request_.null_slot;
  p->state_indices = t[kda_recurrent::state_indices].data;
  p->source_indices = t[kda_recurrent::source_indices].data;
  p->has_initial_state = t[kda_recurrent::has_initial_state].data;
  p->num_accepted_tokens = t[kda_recurrent::num_accepted_tokens].data;
  p->ring_k = t[kda_recurrent::ring_k].data;
  p->ring_u = t[kda_recurrent::ring_u].data;
  p->ring_g = t[kda_recurrent::ring_g].data;
  p->ring_count = t[kda_recurrent::ring_count].data;
  p->ring_length = static_cast<int>(std::max<int64_t>(call.extents[Dim::L], 0));
  p->append = request_.append ? 1 : 0;
  p->slots = static_cast<int>(call.extents[Dim::S]);
  p->columns = static_cast<int>(std::max<int64_t>(call.extents[Dim::spec], 0));
}

KdaRecurrentParams KdaRecurrentExecutor::params(const Call& call, const RecurrentPlan& plan) const {
  KdaRecurrentParams p = {};
  fill_tensors<kda_recurrent::kTensors>(call, false, &p);
  fill_states(call, &p);
  fill_numbers(plan.shape, &p);
  p.tokens = static_cast<int>(call.extents[Dim::T]);
  p.scale = request_.scale;
  p.lower_bound = request_.lower_bound;
  p.beta_factor = request_.beta_factor;
  return p;
}

Status KdaRecurrentExecutor::launch(const Call& call, const RecurrentPlan& plan) const {
  if (plan.empty) return {};
  const KdaRecurrentParams p = params(call, plan);
  LATHE_TRY(kernel_.launch(kda_recurrent_blocks(kernel_.numbers(), plan.grid), &p, call.stream));
  return append_ ? append_.launch(plan.shape.sequences, &p, call.stream) : Status();
}

Result<Estimate> KdaRecurrentExecutor::estimate_plan(const Call&, const RecurrentPlan& plan) const {
  if (plan.empty) return Estimate{};
  return Estimate{append_ ? 2u : 1u,
                  kda_recurrent_cost(problem(), spec(), plan.shape,
                                     {request_.initial_state, request_.final_state})};
}

}  // namespace

MadeExecutor make_kda_recurrent(const Resolved& resolved, const DeviceFacts& facts) {
  LATHE_ASSIGN(const KdaRequest request, kda_recurrent_request(resolved));
  LATHE_ASSIGN(KernelSpec kernel, kda_recurrent_kernel(request.problem, facts));
  return executor_of<KdaRecurrentExecutor>(request, std::move(kernel));
}

}  // namespace lathe
