// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/params.h"

#include "codegen/base/integers.h"
#include "codegen/base/invalid.h"

namespace lathe {
namespace {

// Fills tensors, sizes, grids and arrays of the workspace.
template <typename Params>
void fill_call(const AttentionBackwardCall& of, Params* p) {
  fill_tensors<attention::kTensors>(of.call, of.request.problem.packed, p);
  fill_sizes(of.request.problem, of.shape, p);
  fill_numbers(of.launch, p);
  fill_sections(of.workspace, of.call.workspace, p);
}

// Lays out the lists of `heads` heads for a mask_mod.
void add_lists(const AttentionProblem& problem, const AttentionShape& shape, int64_t heads,
               AttentionLists* out, WorkspaceLayout* layout) {
  const int64_t tiles = out->tiles, sequences = shape.sequences;
  out->lists = heads * (problem.packed ? tiles + sequences : tiles * sequences);
  out->entries = layout->add({out->lists, out->stride, 4});
  out->counts = layout->add({out->lists, 4});
}

}  // namespace

void fill_forward(const AttentionRequest& request, const KernelNumbers& kernel,
                  const AttentionShape& shape, const Call& call, const AttentionLists& lists,
                  AttentionForwardParams* p) {
  fill_tensors<attention::kTensors>(call, request.problem.packed, p);
  fill_scores(request, shape, call, lists, p);
  fill_windows(request, shape.seq_k, shape.seq_q, p);
  p->tiles = static_cast<int>(attention_tiles(kernel, shape));
}

AttentionBackwardPrepareParams attention_prepare_params(const AttentionBackwardCall& of) {
  const bool packed = of.request.problem.packed;
  AttentionBackwardPrepareParams p = {};
  fill_call(of, &p);
  p.row_batch_stride = packed ? 0 : of.shape.seq_q;
  p.row_head_stride = of.launch.rows;
  p.dq = of.call.workspace + of.workspace.dq_sums;
  p.dq_words = of.launch.accumulators * of.launch.dq_rows * of.shape.heads * of.launch.dq_width / 4;
  // With an order of dq its words are zeroed, and the sums are stored before they are added to.
  if (of.launch.dq_turns > 0) {
    p.dq = of.call.workspace + of.workspace.dq_order;
    p.dq_words = of.launch.dq_turns / 2;
  }
  p.tiles = static_cast<int>(of.launch.prepare_tiles);
  return p;
}

AttentionBackwardParams attention_backward_params(const AttentionBackwardCall& of,
                                                  const AttentionLists& lists) {
  const bool packed = of.request.problem.packed;
  char* workspace = of.call.workspace;
  const AttentionGradients& wanted = of.request.gradients;
  AttentionBackwardParams p = {};
  fill_call(of, &p);
  fill_scores(of.request, of.shape, of.call, lists, &p);
  fill_windows(of.request, of.shape.seq_k, of.shape.seq_q, &p);
  put_strides(dense_strides(of.shape.seq_q, of.shape.heads, p.head_dim, packed), &p.dq_batch_stride,
              &p.dq_token_stride, &p.dq_head_stride);
  p.dq_slice_stride = of.launch.rows * p.dq_token_stride;
  if (wanted.dq) p.dq = workspace + of.workspace.dq_sums;
  if (of.launch.apart) {
    if (wanted.dk) p.dk = workspace + of.workspace.dk_parts;
    if (wanted.dv) p.dv = workspace + of.workspace.dv_parts;
    put_strides(dense_strides(of.shape.seq_k, of.shape.heads, p.head_dim, packed),
                &p.dk_batch_stride, &p.dk_token_stride, &p.dk_head_stride);
    put_strides(dense_strides(of.shape.seq_k, of.shape.heads, p.value_dim, packed),
                &p.dv_batch_stride, &p.dv_token_stride, &p.dv_head_stride);
  }
  p.key_tiles = static_cast<int>(lists.tiles);
  return p;
}

AttentionBackwardFinishParams attention_finish_params(const AttentionBackwardCall& of) {
  const AttentionShape& shape = of.shape;
  const bool packed = of.request.problem.packed;
  AttentionBackwardFinishParams p = {};
  fill_call(of, &p);
  put_strides(dense_strides(shape.seq_q, shape.heads, p.head_dim, packed), &p.dq_sums_batch_stride,
              &p.dq_sums_token_stride, &p.dq_sums_head_stride);
  p.dq_sums_slice_stride = of.launch.rows * p.dq_sums_token_stride;
  put_strides(dense_strides(shape.seq_k, shape.heads, p.head_dim, packed), &p.dk_parts_batch_stride,
              &p.dk_parts_token_stride, &p.dk_parts_head_stride);
  put_strides(dense_strides(shape.seq_k, shape.heads, p.value_dim, packed),
              &p.dv_parts_batch_stride, &p.dv_parts_token_stride, &p.dv_parts_head_stride);
  p.slices = static_cast<int>(of.launch.accumulators);
  p.tiles = static_cast<int>(of.launch.prepare_tiles);
  p.softmax_scale = of.request.softmax_scale;
  return p;
}

AttentionBackwardWarpgroupsFinishParams attention_finish_params_in_tiles(
    const AttentionBackwardCall& of) {
  AttentionBackwardWarpgroupsFinishParams p = {};
  p.finish = attention_finish_params(of);
  fill_tensors<attention::kTensors>(of.call, of.request.problem.packed, &p);
  p.sequences = static_cast<int>(of.shape.sequences);
  p.dq_tiles = static_cast<int>(of.launch.dq_tiles);
  if (of.launch.dq_turns > 0) p.dq_order = of.call.workspace + of.workspace.dq_order;
  return p;
}

AttentionLists forward_lists(const AttentionProblem& problem, const KernelNumbers& walker,
                             const AttentionShape& shape, WorkspaceLayout* layout) {
  AttentionLists out;
  out.tiles = attention_tiles(walker, shape);
  out.stride = ceil_div(shape.seq_k, walker.n);
  const bool shared = walker.pack_gqa != 0;
  add_lists(problem, shape, shared ? shape.kv_heads : shape.heads, &out, layout);
  return out;
}

Result<AttentionLists> backward_lists(const AttentionProblem& problem, const KernelNumbers& walker,
                                      const AttentionShape& shape, WorkspaceLayout* layout) {
  AttentionLists out;
  out.tiles = ceil_div(shape.seq_k, walker.n);
  out.stride = ceil_div(shape.seq_q, walker.m);
  LATHE_ASSIGN(out.blocks, checked_product("a launch", {out.tiles, shape.heads, shape.sequences}));
  if (out.blocks > kMaxExtent) {
    return unsupported(text("mask_mod over ", shape.sequences, " sequences, ", shape.heads,
                            " heads and ", shape.seq_k, " keys needs more than ", kMaxExtent,
                            " blocks; split the batch"));
  }
  add_lists(problem, shape, shape.heads, &out, layout);
  return out;
}

}  // namespace lathe
