// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Filling the parameters of chunked KDA.
#include "ops/kda/params.h"

#include <algorithm>

namespace lathe {
namespace {

// Of an activation [B, T, heads] or [B, T, heads, width].
void put_strides(const Tensor& from, long long* batch, long long* token, long long* head) {
  *batch = from.stride[0], *token = from.stride[1], *head = from.stride[2];
}

KdaInputs inputs_of(const KdaCall& of, const KernelSpec& walk) {
  const auto& t = of.call.tensors;
  KdaInputs in = {};
  in.q = t[kda::q].data, in.k = t[kda::k].data, in.v = t[kda::v].data;
  in.g = t[kda::g].data, in.beta = t[kda::beta].data;
  in.A_log = t[kda::A_log].data, in.dt_bias = t[kda::dt_bias].data;
  in.cu_seqlens = of.part.ranks ? of.part.cu_seqlens : t[kda::cu_seqlens].data;
  put_strides(t[kda::q], &in.q_batch_stride, &in.q_token_stride, &in.q_head_stride);
  put_strides(t[kda::k], &in.k_batch_stride, &in.k_token_stride, &in.k_head_stride);
  put_strides(t[kda::v], &in.v_batch_stride, &in.v_token_stride, &in.v_head_stride);
  put_strides(t[kda::g], &in.g_batch_stride, &in.g_token_stride, &in.g_head_stride);
  put_strides(t[kda::beta], &in.beta_batch_stride, &in.beta_token_stride, &in.beta_head_stride);
  in.sequences = static_cast<int>(of.shape.sequences);
  in.heads = static_cast<int>(of.shape.heads);
  in.value_heads = static_cast<int>(of.shape.value_heads);
  in.tokens = static_cast<int>(of.shape.tokens);
  in.key_dim = of.request.problem.key_dim, in.value_dim = of.request.problem.value_dim;
  in.value_tiles = static_cast<int>(kda_value_tiles(of.request.problem, walk));
  in.segments = static_cast<int>(of.shape.segments);
  in.scale = of.request.scale;
  in.lower_bound = of.request.lower_bound;
  in.beta_factor = of.request.beta_factor;
  return in;
}

// What the forward leaves: tensors of the caller's, or parts of the workspace.
struct Saved {
  void *values, *states;
};
Saved saved_of(const KdaCall& of) {
  const auto& t = of.call.tensors;
  if (of.request.saved_outside) return {t[kda::saved_values].data, t[kda::saved_states].data};
  return {of.call.workspace + of.workspace.saved_values,
          of.call.workspace + of.workspace.saved_states};
}

}  // namespace

char* KdaCall::states(int tensor) const {
  char* data = call.tensors[tensor].data;
  const int64_t each = int64_t{4} * request.problem.key_dim * request.problem.value_dim;
  return data == nullptr ? nullptr : data + part.first * shape.value_heads * each;
}

KdaSummaryParams kda_summary_params(const KdaCall& of, const KernelSpec& walk) {
  const auto& t = of.call.tensors;
  KdaSummaryParams p = {};
  p.in = inputs_of(of, walk);
  p.initial_state = of.states(kda::initial_state);
  p.d_o = t[kda::d_o].data;
  p.dht = of.states(kda::dht);
  p.summaries = of.call.workspace + of.workspace.summaries;
  p.transitions = of.call.workspace + of.workspace.transitions;
  p.grad_ends = of.call.workspace + of.workspace.grad_ends;
  put_strides(t[kda::d_o], &p.do_batch_stride, &p.do_token_stride, &p.do_head_stride);
  p.forward_blocks = static_cast<int>(of.launch.summary_forward);
  p.carried = of.part.carry.carried;
  p.open = of.part.ranks ? of.part.carry.open : p.in.sequences;
  return p;
}

KdaMergeParams kda_merge_params(const KdaCall& of) {
  KdaMergeParams p = {};
  p.carry = of.part.carry;
  p.cu_seqlens = of.part.ranks ? of.part.cu_seqlens : of.call.tensors[kda::cu_seqlens].data;
  p.summaries = of.call.workspace + of.workspace.summaries;
  p.transitions = of.call.workspace + of.workspace.transitions;
  p.grad_ends = of.call.workspace + of.workspace.grad_ends;
  p.sequences = static_cast<int>(of.shape.sequences);
  p.value_heads = static_cast<int>(of.shape.value_heads);
  p.tokens = static_cast<int>(of.shape.tokens);
  p.key_dim = of.request.problem.key_dim, p.value_dim = of.request.problem.value_dim;
  p.segments = static_cast<int>(of.shape.segments);
  return p;
}

KdaForwardParams kda_forward_params(const KdaCall& of, const KernelSpec& walk) {
  const auto& t = of.call.tensors;
  KdaForwardParams p = {};
  p.in = inputs_of(of, walk);
  p.carry = of.part.carry;
  p.initial_state = of.states(kda::initial_state);
  p.summaries = of.call.workspace + of.workspace.summaries;
  p.o = t[kda::o].data;
  p.final_state = of.states(kda::final_state);
  p.chunk_states = t[kda::chunk_states].data;
  if (of.request.problem.saves) {
    const Saved saved = saved_of(of);
    p.saved_values = saved.values, p.saved_states = saved.states;
  }
  put_strides(t[kda::o], &p.o_batch_stride, &p.o_token_stride, &p.o_head_stride);
  p.chunk_size = of.request.chunk_size;
  // Rows of a batch one after another, and those of packed sequences as far as there is room.
  const Tensor& chunks = t[kda::chunk_states];
  p.chunks = static_cast<int>(std::min(chunks.extent[0] * chunks.extent[1], kMaxExtent));
  return p;
}

KdaBackwardScanParams kda_scan_params(const KdaCall& of, const KernelSpec& walk) {
  const auto& t = of.call.tensors;
  KdaBackwardScanParams p = {};
  p.in = inputs_of(of, walk);
  p.carry = of.part.carry;
  p.initial_state = of.states(kda::initial_state);
  p.summaries = of.call.workspace + of.workspace.summaries;
  p.grad_ends = of.call.workspace + of.workspace.grad_ends;
  p.d_o = t[kda::d_o].data;
  p.dht = of.states(kda::dht);
  p.dinitial_state = of.states(kda::dinitial_state);
  if (of.launch.scan_forward > 0) {
    const Saved saved = saved_of(of);
    p.saved_values = saved.values, p.saved_states = saved.states;
  }
  p.value_grads = of.call.workspace + of.workspace.value_grads;
  p.state_grads = of.call.workspace + of.workspace.state_grads;
  put_strides(t[kda::d_o], &p.do_batch_stride, &p.do_token_stride, &p.do_head_stride);
  p.forward_blocks = static_cast<int>(of.launch.scan_forward);
  return p;
}

KdaBackwardParams kda_backward_params(const KdaCall& of, const KernelSpec& walk) {
  const auto& t = of.call.tensors;
  KdaBackwardParams p = {};
  p.in = inputs_of(of, walk);
  p.d_o = t[kda::d_o].data;
  const Saved saved = saved_of(of);
  p.saved_values = saved.values, p.saved_states = saved.states;
  p.value_grads = of.call.workspace + of.workspace.value_grads;
  p.state_grads = of.call.workspace + of.workspace.state_grads;
  p.dq = t[kda::dq].data, p.dk = t[kda::dk].data, p.dv = t[kda::dv].data;
  p.dg = t[kda::dg].data, p.dbeta = t[kda::dbeta].data;
  const KdaProblem& problem = of.request.problem;
  if (problem.dA_log) p.rate_sums = of.call.workspace + of.workspace.rate_sums;
  if (problem.ddt_bias) p.bias_sums = of.call.workspace + of.workspace.bias_sums;
  put_strides(t[kda::d_o], &p.do_batch_stride, &p.do_token_stride, &p.do_head_stride);
  put_strides(t[kda::dq], &p.dq_batch_stride, &p.dq_token_stride, &p.dq_head_stride);
  put_strides(t[kda::dk], &p.dk_batch_stride, &p.dk_token_stride, &p.dk_head_stride);
  put_strides(t[kda::dv], &p.dv_batch_stride, &p.dv_token_stride, &p.dv_head_stride);
  put_strides(t[kda::dg], &p.dg_batch_stride, &p.dg_token_stride, &p.dg_head_stride);
  put_strides(t[kda::dbeta], &p.dbeta_batch_stride, &p.dbeta_token_stride, &p.dbeta_head_stride);
  p.slots = static_cast<int>(kda_slots(of.request.problem, of.shape));
  return p;
}

KdaBackwardFinishParams kda_finish_params(const KdaCall& of) {
  const auto& t = of.call.tensors;
  KdaBackwardFinishParams p = {};
  p.rate_sums = of.call.workspace + of.workspace.rate_sums;
  p.bias_sums = of.call.workspace + of.workspace.bias_sums;
  p.dA_log = t[kda::dA_log].data;
  p.ddt_bias = t[kda::ddt_bias].data;
  // Without tokens no chunk has left anything.
  p.slots = of.launch.backward > 0 ? static_cast<int>(kda_slots(of.request.problem, of.shape)) : 0;
  p.value_heads = static_cast<int>(of.shape.value_heads);
  p.key_dim = of.request.problem.key_dim;
  return p;
}

}  // namespace lathe
