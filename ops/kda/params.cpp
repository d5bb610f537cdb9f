// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Fills the parameters of chunked KDA.
#include "ops/kda/params.h"

#include <algorithm>

#include "ops/fill.h"

namespace lathe {
namespace {

// Fills tensors, sizes and arrays of the workspace.
template <typename Params>
void fill(const KdaCall& of, Params* p) {
  fill_tensors<kda::kTensors>(of.call, false, p);
  fill_numbers(of.shape, p);
  fill_numbers(of.request.problem, p);
  fill_sections(of.workspace, of.call.workspace, p);
  if constexpr (requires { p->do_head_stride; }) {
    p->d_o = of.call.tensors[kda::d_o].data;
    put_strides(attention_strides(of.call.tensors[kda::d_o], false), &p->do_batch_stride,
                &p->do_token_stride, &p->do_head_stride);
  }
}

KdaInputs inputs_of(const KdaCall& of, const KernelSpec& walk) {
  KdaInputs in = {};
  fill(of, &in);
  if (of.part.ranks) in.cu_seqlens = of.part.cu_seqlens;
  in.value_tiles = static_cast<int>(kda_value_tiles(of.request.problem, walk));
  in.scale = of.request.scale;
  in.lower_bound = of.request.lower_bound;
  in.beta_factor = of.request.beta_factor;
  return in;
}

// Holds the forward's saved values and states: the caller's tensors, or sections of the workspace.
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
  KdaSummaryParams p = {};
  p.in = inputs_of(of, walk);
  fill(of, &p);
  p.initial_state = of.states(kda::initial_state);
  p.dht = of.states(kda::dht);
  p.forward_blocks = static_cast<int>(of.launch.summary_forward);
  p.carried = of.part.carry.carried;
  p.open = of.part.ranks ? of.part.carry.open : p.in.sequences;
  return p;
}

KdaMergeParams kda_merge_params(const KdaCall& of) {
  KdaMergeParams p = {};
  fill(of, &p);
  p.carry = of.part.carry;
  p.cu_seqlens = of.part.ranks ? of.part.cu_seqlens : of.call.tensors[kda::cu_seqlens].data;
  return p;
}

KdaForwardParams kda_forward_params(const KdaCall& of, const KernelSpec& walk) {
  KdaForwardParams p = {};
  p.in = inputs_of(of, walk);
  fill(of, &p);
  p.carry = of.part.carry;
  p.initial_state = of.states(kda::initial_state);
  p.final_state = of.states(kda::final_state);
  const Tensor& chunks = of.call.tensors[kda::chunk_states];
  p.chunk_states = chunks.data;
  if (of.request.problem.saves) {
    const Saved saved = saved_of(of);
    p.saved_values = saved.values, p.saved_states = saved.states;
  }
  p.chunk_size = of.request.chunk_size;
  // Rows of a batch one after another, and those of packed sequences as far as there is room.
  p.chunks = static_cast<int>(std::min(chunks.extent[0] * chunks.extent[1], kMaxExtent));
  return p;
}

KdaBackwardScanParams kda_scan_params(const KdaCall& of, const KernelSpec& walk) {
  KdaBackwardScanParams p = {};
  p.in = inputs_of(of, walk);
  fill(of, &p);
  p.carry = of.part.carry;
  p.initial_state = of.states(kda::initial_state);
  p.dht = of.states(kda::dht);
  p.dinitial_state = of.states(kda::dinitial_state);
  if (of.launch.scan_forward > 0) {
    const Saved saved = saved_of(of);
    p.saved_values = saved.values, p.saved_states = saved.states;
  }
  p.forward_blocks = static_cast<int>(of.launch.scan_forward);
  return p;
}

KdaBackwardParams kda_backward_params(const KdaCall& of, const KernelSpec& walk) {
  KdaBackwardParams p = {};
  p.in = inputs_of(of, walk);
  fill(of, &p);
  const Saved saved = saved_of(of);
  p.saved_values = saved.values, p.saved_states = saved.states;
  if (!of.request.problem.dA_log) p.rate_sums = nullptr;
  if (!of.request.problem.ddt_bias) p.bias_sums = nullptr;
  p.slots = static_cast<int>(kda_slots(of.request.problem, of.shape));
  return p;
}

KdaBackwardFinishParams kda_finish_params(const KdaCall& of) {
  const auto& t = of.call.tensors;
  KdaBackwardFinishParams p = {};
  fill(of, &p);
  p.dA_log = t[kda::dA_log].data;
  p.ddt_bias = t[kda::ddt_bias].data;
  // Without tokens no chunk has left anything.
  p.slots = of.launch.backward > 0 ? static_cast<int>(kda_slots(of.request.problem, of.shape)) : 0;
  return p;
}

}  // namespace lathe
