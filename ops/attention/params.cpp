// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/params.h"

namespace lathe {
namespace {

// The sums of dq in the workspace.
template <typename Params>
void fill_dq_sums(const AttentionBackwardCall& of, Params* p) {
  put_strides(dense_strides(of.shape.seq_q, of.shape.heads, p->head_dim, of.request.problem.packed),
              &p->dq_batch_stride, &p->dq_token_stride, &p->dq_head_stride);
  p->dq_slice_stride = of.launch.rows * p->dq_token_stride;
}

}  // namespace

AttentionForwardParams attention_forward_params(const AttentionRequest& request,
                                                const KernelSpec& spec, const AttentionShape& shape,
                                                const Call& call, const AttentionLists& lists) {
  AttentionForwardParams p = {};
  fill_tensors<attention::kTensors>(call, request.problem.packed, &p);
  fill_scores(request, shape, call, lists, &p);
  fill_windows(request, shape.seq_k, shape.seq_q, &p);
  p.tiles = static_cast<int>(attention_tiles(spec, shape));
  return p;
}

AttentionBackwardPrepareParams attention_prepare_params(const AttentionBackwardCall& of) {
  const bool packed = of.request.problem.packed;
  char* workspace = of.call.workspace;
  AttentionBackwardPrepareParams p = {};
  fill_tensors<attention::kTensors>(of.call, packed, &p);
  fill_sizes(of.request.problem, of.shape, &p);
  p.lse2 = workspace + of.workspace.lse2;
  p.error = workspace + of.workspace.error;
  p.row_batch_stride = packed ? 0 : of.shape.seq_q;
  p.row_head_stride = of.launch.rows;
  p.dq = workspace + of.workspace.dq_sums;
  p.dsinks_parts = workspace + of.workspace.dsinks_parts;
  fill_dq_sums(of, &p);
  p.rows = static_cast<int>(of.launch.rows);
  p.slices = static_cast<int>(of.launch.accumulators);
  p.tiles = static_cast<int>(of.launch.prepare_tiles);
  return p;
}

AttentionBackwardParams attention_backward_params(const AttentionBackwardCall& of,
                                                  const AttentionLists& lists) {
  const bool packed = of.request.problem.packed;
  char* workspace = of.call.workspace;
  const AttentionGradients& wanted = of.request.gradients;
  AttentionBackwardParams p = {};
  fill_tensors<attention::kTensors>(of.call, packed, &p);
  fill_scores(of.request, of.shape, of.call, lists, &p);
  fill_windows(of.request, of.shape.seq_k, of.shape.seq_q, &p);
  p.lse2 = workspace + of.workspace.lse2;
  p.error = workspace + of.workspace.error;
  fill_dq_sums(of, &p);
  if (wanted.dq) p.dq = workspace + of.workspace.dq_sums;
  if (of.launch.apart) {
    if (wanted.dk) p.dk = workspace + of.workspace.dk_parts;
    if (wanted.dv) p.dv = workspace + of.workspace.dv_parts;
    put_strides(dense_strides(of.shape.seq_k, of.shape.heads, p.head_dim, packed),
                &p.dk_batch_stride, &p.dk_token_stride, &p.dk_head_stride);
    put_strides(dense_strides(of.shape.seq_k, of.shape.heads, p.value_dim, packed),
                &p.dv_batch_stride, &p.dv_token_stride, &p.dv_head_stride);
  }
  p.rows = static_cast<int>(of.launch.rows);
  p.slices = static_cast<int>(of.launch.slices);
  p.key_tiles = static_cast<int>(lists.tiles);
  return p;
}

AttentionBackwardFinishParams attention_finish_params(const AttentionBackwardCall& of) {
  const AttentionShape& shape = of.shape;
  const bool packed = of.request.problem.packed;
  char* workspace = of.call.workspace;
  AttentionBackwardFinishParams p = {};
  fill_tensors<attention::kTensors>(of.call, packed, &p);
  fill_sizes(of.request.problem, shape, &p);
  p.dq_sums = workspace + of.workspace.dq_sums;
  p.dk_parts = workspace + of.workspace.dk_parts;
  p.dv_parts = workspace + of.workspace.dv_parts;
  p.dsinks_parts = workspace + of.workspace.dsinks_parts;
  put_strides(dense_strides(shape.seq_q, shape.heads, p.head_dim, packed), &p.dq_sums_batch_stride,
              &p.dq_sums_token_stride, &p.dq_sums_head_stride);
  p.dq_sums_slice_stride = of.launch.rows * p.dq_sums_token_stride;
  put_strides(dense_strides(shape.seq_k, shape.heads, p.head_dim, packed), &p.dk_parts_batch_stride,
              &p.dk_parts_token_stride, &p.dk_parts_head_stride);
  put_strides(dense_strides(shape.seq_k, shape.heads, p.value_dim, packed),
              &p.dv_parts_batch_stride, &p.dv_parts_token_stride, &p.dv_parts_head_stride);
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
