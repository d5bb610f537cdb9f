// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements kda_decode behind the plan: one kernel, no workspace.
#include <algorithm>
#include <utility>

#include "codegen/base/invalid.h"
#include "ops/executor.h"
#include "ops/kda/decode/request.h"
#include "templates/params/kda_decode.h"

namespace lathe {

using namespace kda_decode;

namespace {

// The upper half of a slot's count of records counts the blocks that have read it.
constexpr int64_t kMostRecords = 65535, kMostHeads = 32767;

struct DecodePlan {
  KdaShape shape;
  bool empty = false;  // nothing to write

  int64_t total() const { return 0; }
};

// Strides of [B, HV, width] or [B, T, HV, width], with 0 between tokens where there is one.
void put_row_strides(const Tensor& tensor, bool tokens, long long* batch, long long* token,
                     long long* head) {
  *batch = tensor.stride[0];
  *token = tokens ? tensor.stride[1] : 0;
  *head = tensor.stride[tokens ? 2 : 1];
}

class KdaDecodeExecutor final : public PlannedExecutor<KdaDecodeExecutor, DecodePlan> {
 public:
  KdaDecodeExecutor(const KdaDecodeRequest& request, KernelSpec kernel)
      : request_(request), kernel_(std::move(kernel)) {
    list({&kernel_});
  }

  Result<DecodePlan> plan(const Call& call) const;
  Status launch(const Call& call, const DecodePlan& plan) const;
  Result<Estimate> estimate_plan(const Call& call, const DecodePlan& plan) const;

 private:
  const KdaProblem& problem() const { return request_.problem.kda; }
  bool has_tokens() const { return request_.problem.tokens > 1; }
  bool has_rings() const { return problem().states == kKdaStatesRings; }
  KdaDecodeParams params(const Call& call, const DecodePlan& plan) const;
  void fill_state(const Call& call, KdaRecurrentParams* p) const;
  void fill_numbers(const Call& call, const DecodePlan& plan, KdaRecurrentParams* p) const;

  KdaDecodeRequest request_;
  KernelSlot kernel_;
};

Result<DecodePlan> KdaDecodeExecutor::plan(const Call& call) const {
  LATHE_TRY(check_kda_decode_extents(call.extents));
  const Extents& extents = call.extents;
  DecodePlan out;
  out.shape.sequences = extents[Dim::B];
  LATHE_ASSIGN(out.shape.heads, kda_decode_heads(extents));
  out.shape.value_heads = extents[Dim::HV];
  const int64_t tokens = has_tokens() ? extents[Dim::T] : 1;
  out.shape.rows = out.shape.sequences * tokens;
  // Without tokens states go from their sources to their slots; slots of records are left alone.
  const bool copies = tokens == 0 && call.tensors[source_indices].data != nullptr;
  out.empty = out.shape.sequences == 0 || out.shape.value_heads == 0 || (tokens == 0 && !copies);
  if (has_rings() && (extents[Dim::L] > kMostRecords || out.shape.heads > kMostHeads)) {
    return unsupported(text("ring_k has L = ", extents[Dim::L], " and H = ", out.shape.heads,
                            "; allowed are L up to ", kMostRecords, " and H up to ", kMostHeads));
  }
  if (out.empty || out.shape.heads <= kMaxExtent / out.shape.sequences) return out;
  return unsupported(text("qkv of ", out.shape.sequences, " sequences and ", out.shape.heads,
                          " heads needs more than ", kMaxExtent, " blocks; split the batch"));
}

void KdaDecodeExecutor::fill_state(const Call& call, KdaRecurrentParams* p) const {
  const auto& t = call.tensors;
  const Tensor& pool = t[state_pool];
  p->state_in = pool.data;
  p->state_out = request_.numbers.update_state ? pool.data : nullptr;
  p->in_slot_stride = p->out_slot_stride = pool.stride[0];
  p->in_head_stride = p->out_head_stride = pool.stride[1];
  p->in_row_stride = p->out_row_stride = pool.stride[2];
  p->state_indices = t[state_indices].data;
  p->source_indices = t[source_indices].data;
  p->ring_k = t[ring_k].data;
  p->ring_u = t[ring_u].data;
  p->ring_g = t[ring_g].data;
  p->ring_count = t[ring_count].data;
  p->ring_length = static_cast<int>(std::max<int64_t>(call.extents[Dim::L], 0));
  p->append = request_.numbers.append ? 1 : 0;
  p->slots = static_cast<int>(call.extents[Dim::S]);
  p->null_slot = request_.numbers.null_slot;
}

void KdaDecodeExecutor::fill_numbers(const Call& call, const DecodePlan& plan,
                                     KdaRecurrentParams* p) const {
  const auto& t = call.tensors;
  p->g = t[g].data;
  put_row_strides(t[g], has_tokens(), &p->g_batch_stride, &p->g_token_stride, &p->g_head_stride);
  p->beta = t[beta].data;
  p->beta_batch_stride = t[beta].stride[0];
  p->beta_token_stride = has_tokens() ? t[beta].stride[1] : 0;
  p->o = t[o].data;
  put_row_strides(t[o], has_tokens(), &p->o_batch_stride, &p->o_token_stride, &p->o_head_stride);
  p->A_log = t[A_log].data;
  p->dt_bias = t[dt_bias].data;
  p->sequences = static_cast<int>(plan.shape.sequences);
  p->heads = static_cast<int>(plan.shape.heads);
  p->value_heads = static_cast<int>(plan.shape.value_heads);
  p->tokens = has_tokens() ? static_cast<int>(call.extents[Dim::T]) : 1;
  p->scale = request_.numbers.scale;
  p->lower_bound = request_.numbers.lower_bound;
  p->beta_factor = request_.numbers.beta_factor;
}

KdaDecodeParams KdaDecodeExecutor::params(const Call& call, const DecodePlan& plan) const {
  const auto& t = call.tensors;
  KdaDecodeParams p = {};
  fill_state(call, &p.state);
  fill_numbers(call, plan, &p.state);
  p.qkv = t[qkv].data;
  p.qkv_batch_stride = t[qkv].stride[0];
  p.qkv_token_stride = has_tokens() ? t[qkv].stride[1] : 0;
  p.conv_weight = t[conv_weight].data;
  p.conv_bias = t[conv_bias].data;
  p.conv_pool = t[conv_pool].data;
  p.conv_slot_stride = t[conv_pool].stride[0];
  p.conv_channel_stride = t[conv_pool].stride[1];
  p.conv_column_stride = t[conv_pool].stride[2];
  p.output_gate = t[output_gate].data;
  put_row_strides(t[output_gate], has_tokens(), &p.output_gate_batch_stride,
                  &p.output_gate_token_stride, &p.output_gate_head_stride);
  p.norm_weight = t[norm_weight].data;
  p.norm_eps = request_.norm_eps;
  return p;
}

Status KdaDecodeExecutor::launch(const Call& call, const DecodePlan& plan) const {
  if (plan.empty) return {};
  const KdaDecodeParams p = params(call, plan);
  return kernel_.launch(plan.shape.sequences * plan.shape.heads, &p, call.stream);
}

Result<Estimate> KdaDecodeExecutor::estimate_plan(const Call&, const DecodePlan& plan) const {
  if (plan.empty) return Estimate{};
  return Estimate{1, kda_decode_cost(request_.problem, plan.shape, request_.numbers.update_state)};
}

}  // namespace

MadeExecutor make_kda_decode(const Resolved& resolved, const DeviceFacts& facts) {
  LATHE_ASSIGN(const KdaDecodeRequest request, kda_decode_request(resolved));
  LATHE_ASSIGN(KernelSpec kernel, kda_decode_kernel(request.problem, facts));
  return executor_of<KdaDecodeExecutor>(request, std::move(kernel));
}

}  // namespace lathe
