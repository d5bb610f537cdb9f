// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/params.h"

namespace lathe {
namespace {

// A window that cuts nothing is none, so that sums of positions and windows stay small.
template <typename Params>
void fill_windows(const AttentionRequest& request, const AttentionShape& shape, Params* p) {
  const int64_t left = request.window_left, right = request.window_right;
  p->window_left = static_cast<int>(left >= shape.seq_k ? -1 : left);
  p->window_right = static_cast<int>(right > 0 && right >= shape.seq_q ? -1 : right);
}

template <typename Params>
void fill_sizes(const AttentionRequest& request, const AttentionShape& shape, Params* p) {
  if constexpr (requires { p->sequences; }) p->sequences = static_cast<int>(shape.sequences);
  p->heads = static_cast<int>(shape.heads);
  if constexpr (requires { p->kv_heads; }) p->kv_heads = static_cast<int>(shape.kv_heads);
  p->seq_q = static_cast<int>(shape.seq_q);
  if constexpr (requires { p->seq_k; }) p->seq_k = static_cast<int>(shape.seq_k);
  p->head_dim = request.problem.head_dim;
  p->value_dim = request.problem.value_dim;
}

// Without gaps, as the workspace has it: [B, tokens, heads, width].
AttentionStrides dense(int64_t tokens, int64_t heads, int64_t width, bool packed) {
  return {packed ? 0 : tokens * heads * width, heads * width, width};
}

void put(const AttentionStrides& from, long long* batch, long long* token, long long* head) {
  *batch = from.batch;
  *token = from.token;
  *head = from.head;
}

struct Tensors {
  const Call& call;
  bool packed;

  char* data(int tensor) const { return call.tensors[tensor].data; }
  AttentionStrides strides(int tensor) const {
    return attention_strides(call.tensors[tensor], packed);
  }
};

}  // namespace

AttentionForwardParams attention_forward_params(const AttentionRequest& request,
                                                const KernelSpec& spec, const AttentionShape& shape,
                                                const Call& call) {
  const Tensors t{call, request.problem.packed};
  AttentionForwardParams p = {};
  p.q = t.data(attention::q);
  p.k = t.data(attention::k);
  p.v = t.data(attention::v);
  p.cu_seqlens_q = t.data(attention::cu_seqlens_q);
  p.cu_seqlens_k = t.data(attention::cu_seqlens_k);
  p.alibi_slopes = t.data(attention::alibi_slopes);
  p.sinks = t.data(attention::sinks);
  p.out = t.data(attention::out);
  p.lse = t.data(attention::lse);
  put(t.strides(attention::q), &p.q_batch_stride, &p.q_token_stride, &p.q_head_stride);
  put(t.strides(attention::k), &p.k_batch_stride, &p.k_token_stride, &p.k_head_stride);
  put(t.strides(attention::v), &p.v_batch_stride, &p.v_token_stride, &p.v_head_stride);
  put(t.strides(attention::out), &p.out_batch_stride, &p.out_token_stride, &p.out_head_stride);
  p.alibi_batch_stride = request.alibi_rows ? shape.heads : 0;
  fill_sizes(request, shape, &p);
  fill_windows(request, shape, &p);
  p.tiles = static_cast<int>(attention_tiles(spec, shape));
  p.softmax_scale = request.softmax_scale;
  p.softcap = request.softcap;
  return p;
}

AttentionBackwardPrepareParams attention_prepare_params(const AttentionBackwardCall& of) {
  const Tensors t{of.call, of.request.problem.packed};
  char* workspace = of.call.workspace;
  AttentionBackwardPrepareParams p = {};
  p.out = t.data(attention::out);
  p.dout = t.data(attention::dout);
  p.lse = t.data(attention::lse);
  p.dlse = t.data(attention::dlse);
  p.cu_seqlens_q = t.data(attention::cu_seqlens_q);
  p.sinks = t.data(attention::sinks);
  p.lse2 = workspace + of.workspace.lse2;
  p.error = workspace + of.workspace.error;
  p.row_batch_stride = t.packed ? 0 : of.shape.seq_q;
  p.row_head_stride = of.launch.rows;
  p.dq = workspace + of.workspace.dq_sums;
  p.dsinks_parts = workspace + of.workspace.dsinks_parts;
  put(t.strides(attention::out), &p.out_batch_stride, &p.out_token_stride, &p.out_head_stride);
  put(t.strides(attention::dout), &p.dout_batch_stride, &p.dout_token_stride, &p.dout_head_stride);
  fill_sizes(of.request, of.shape, &p);
  put(dense(of.shape.seq_q, of.shape.heads, p.head_dim, t.packed), &p.dq_batch_stride,
      &p.dq_token_stride, &p.dq_head_stride);
  p.dq_slice_stride = of.launch.rows * p.dq_token_stride;
  p.rows = static_cast<int>(of.launch.rows);
  p.slices = static_cast<int>(of.launch.accumulators);
  p.tiles = static_cast<int>(of.launch.prepare_tiles);
  return p;
}

AttentionBackwardParams attention_backward_params(const AttentionBackwardCall& of) {
  const Tensors t{of.call, of.request.problem.packed};
  char* workspace = of.call.workspace;
  const AttentionGradients& wanted = of.request.gradients;
  AttentionBackwardParams p = {};
  p.q = t.data(attention::q);
  p.k = t.data(attention::k);
  p.v = t.data(attention::v);
  p.dout = t.data(attention::dout);
  p.lse2 = workspace + of.workspace.lse2;
  p.error = workspace + of.workspace.error;
  p.cu_seqlens_q = t.data(attention::cu_seqlens_q);
  p.cu_seqlens_k = t.data(attention::cu_seqlens_k);
  p.alibi_slopes = t.data(attention::alibi_slopes);
  put(t.strides(attention::q), &p.q_batch_stride, &p.q_token_stride, &p.q_head_stride);
  put(t.strides(attention::k), &p.k_batch_stride, &p.k_token_stride, &p.k_head_stride);
  put(t.strides(attention::v), &p.v_batch_stride, &p.v_token_stride, &p.v_head_stride);
  put(t.strides(attention::dout), &p.dout_batch_stride, &p.dout_token_stride, &p.dout_head_stride);
  fill_sizes(of.request, of.shape, &p);
  fill_windows(of.request, of.shape, &p);
  put(dense(of.shape.seq_q, of.shape.heads, p.head_dim, t.packed), &p.dq_batch_stride,
      &p.dq_token_stride, &p.dq_head_stride);
  p.dq_slice_stride = of.launch.rows * p.dq_token_stride;
  if (wanted.dq) p.dq = workspace + of.workspace.dq_sums;
  if (of.launch.apart) {
    if (wanted.dk) p.dk = workspace + of.workspace.dk_parts;
    if (wanted.dv) p.dv = workspace + of.workspace.dv_parts;
    put(dense(of.shape.seq_k, of.shape.heads, p.head_dim, t.packed), &p.dk_batch_stride,
        &p.dk_token_stride, &p.dk_head_stride);
    put(dense(of.shape.seq_k, of.shape.heads, p.value_dim, t.packed), &p.dv_batch_stride,
        &p.dv_token_stride, &p.dv_head_stride);
  } else {
    p.dk = t.data(attention::dk);
    p.dv = t.data(attention::dv);
    put(t.strides(attention::dk), &p.dk_batch_stride, &p.dk_token_stride, &p.dk_head_stride);
    put(t.strides(attention::dv), &p.dv_batch_stride, &p.dv_token_stride, &p.dv_head_stride);
  }
  p.alibi_batch_stride = of.request.alibi_rows ? of.shape.heads : 0;
  p.rows = static_cast<int>(of.launch.rows);
  p.slices = static_cast<int>(of.launch.slices);
  p.softmax_scale = of.request.softmax_scale;
  p.softcap = of.request.softcap;
  return p;
}

AttentionBackwardFinishParams attention_finish_params(const AttentionBackwardCall& of) {
  const Tensors t{of.call, of.request.problem.packed};
  const AttentionShape& shape = of.shape;
  char* workspace = of.call.workspace;
  AttentionBackwardFinishParams p = {};
  fill_sizes(of.request, shape, &p);
  p.dq_sums = workspace + of.workspace.dq_sums;
  p.dk_parts = workspace + of.workspace.dk_parts;
  p.dv_parts = workspace + of.workspace.dv_parts;
  p.dsinks_parts = workspace + of.workspace.dsinks_parts;
  p.dq = t.data(attention::dq);
  p.dk = t.data(attention::dk);
  p.dv = t.data(attention::dv);
  p.dsinks = t.data(attention::dsinks);
  put(dense(shape.seq_q, shape.heads, p.head_dim, t.packed), &p.dq_sums_batch_stride,
      &p.dq_sums_token_stride, &p.dq_sums_head_stride);
  p.dq_sums_slice_stride = of.launch.rows * p.dq_sums_token_stride;
  put(dense(shape.seq_k, shape.heads, p.head_dim, t.packed), &p.dk_parts_batch_stride,
      &p.dk_parts_token_stride, &p.dk_parts_head_stride);
  put(dense(shape.seq_k, shape.heads, p.value_dim, t.packed), &p.dv_parts_batch_stride,
      &p.dv_parts_token_stride, &p.dv_parts_head_stride);
  put(t.strides(attention::dq), &p.dq_batch_stride, &p.dq_token_stride, &p.dq_head_stride);
  put(t.strides(attention::dk), &p.dk_batch_stride, &p.dk_token_stride, &p.dk_head_stride);
  put(t.strides(attention::dv), &p.dv_batch_stride, &p.dv_token_stride, &p.dv_head_stride);
  p.rows = static_cast<int>(of.launch.rows);
  p.keys = static_cast<int>(of.launch.keys);
  p.slices = static_cast<int>(of.launch.accumulators);
  p.tiles = static_cast<int>(of.launch.prepare_tiles);
  p.dq_blocks = static_cast<int>(of.launch.dq_blocks);
  p.dk_blocks = static_cast<int>(of.launch.dk_blocks);
  p.dv_blocks = static_cast<int>(of.launch.dv_blocks);
  p.dsinks_blocks = static_cast<int>(of.launch.dsinks_blocks);
  p.softmax_scale = of.request.softmax_scale;
  return p;
}

}  // namespace lathe
