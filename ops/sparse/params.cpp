// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/sparse/params.h"

#include <algorithm>

#include "ops/fill.h"

namespace lathe {
namespace {

namespace of_op = sparse_attention;

int to_int(int64_t value) { return static_cast<int>(value); }

// Fills tensors and sizes.
template <typename Params>
void fill(const SparseCall& of, Params* p) {
  fill_tensors<sparse_attention::kTensors>(of.call, of.request.tokens, p);
  fill_numbers(of.shape, p);
  fill_numbers(of.request.problem, p);
}
// Fills the same for the backward, with its grids and the arrays of its workspace.
template <typename Params>
void fill(const SparseBackwardCall& of, Params* p) {
  fill(of.of, p);
  fill_numbers(of.launch, p);
  fill_sections(of.launch.workspace, of.workspace, p);
}

void put_places(const SparsePlaces& places, bool packed, SparseInputs* in) {
  if (places.q_pos) in->q_pos = places.q_pos, in->q_pos_batch_stride = 0;
  in->origin_stride = places.whole_keys;
  if (!packed) return;
  in->cu_seqlens_q = places.cu_seqlens_q;
  in->key_starts = places.key_starts;
  in->key_ends = places.key_ends;
  in->key_origins = places.key_origins;
  in->sequences = to_int(places.runs);
}

SparseInputs inputs(const SparseCall& of, int64_t head_tiles) {
  const SparseProblem& problem = of.request.problem;
  const auto& t = of.call.tensors;
  SparseInputs in = {};
  fill(of, &in);
  if (of.request.positions) in.q_pos = t[of_op::q_pos].data;
  in.q_pos_batch_stride = of.shape.seq_q, in.origin_stride = of.shape.seq_k;
  if (problem.packed) {
    in.key_starts = t[of_op::cu_seqlens_k].data;
    in.key_ends = t[of_op::cu_seqlens_k].data + bytes_of(problem.cu_seqlens);
    in.sequences = to_int(of.call.extents[Dim::N]);
  }
  if (of.places) put_places(*of.places, problem.packed, &in);
  in.block_shift = of.request.block_shift;
  in.absolute = of.request.absolute, in.causal = of.request.causal;
  in.head_tiles = to_int(head_tiles);
  in.scale = of.request.scale;
  return in;
}

}  // namespace

SparseForwardParams sparse_forward_params(const SparseCall& of, int64_t head_tiles, int64_t splits,
                                          const SparsePartials& partials) {
  SparseForwardParams p = {};
  fill(of, &p);
  p.in = inputs(of, head_tiles);
  if (splits > 1) {
    p.partial_out = of.call.workspace;
    p.partial_max = of.call.workspace + partials.maxima;
    p.partial_sum = of.call.workspace + partials.sums;
  }
  p.splits = to_int(splits);
  return p;
}

SparseCombineParams sparse_combine_params(const SparseCall& of,
                                          const SparseForwardParams& forward) {
  SparseCombineParams p = {};
  fill(of, &p);
  p.partial_out = forward.partial_out;
  p.partial_max = forward.partial_max;
  p.partial_sum = forward.partial_sum;
  p.rows = of.shape.rows();
  p.splits = forward.splits;
  return p;
}

SparseBackwardPrepareParams sparse_prepare_params(const SparseBackwardCall& of) {
  SparseBackwardPrepareParams p = {};
  fill(of, &p);
  p.zero_chunks = of.launch.zero_chunks();
  p.tiles = to_int(of.launch.prepare_tiles);
  return p;
}

SparseBackwardParams sparse_backward_params(const SparseBackwardCall& of, int64_t first_row) {
  const SparseBackwardWorkspace& w = of.launch.workspace;
  const SparseGradients& wanted = of.of.request.gradients;
  SparseBackwardParams p = {};
  fill(of, &p);
  p.in = inputs(of.of, of.launch.head_tiles);
  if (wanted.dk) p.dk = of.workspace + w.dk_sums;
  if (wanted.dv) p.dv = of.workspace + w.dv_sums;
  // Without sums there is no room for lists.
  if (!wanted.dk && !wanted.dv) p.listed = nullptr;
  p.first_row = to_int(first_row), p.chunk = to_int(of.launch.chunk);
  p.entries = to_int(of.of.shape.listed());
  return p;
}

SparseBackwardGatherParams sparse_gather_params(const SparseBackwardCall& of,
                                                const SparseBackwardParams& main, int64_t rows) {
  const SparseProblem& problem = of.of.request.problem;
  SparseBackwardGatherParams p = {};
  fill_sections(of.launch.workspace, of.workspace, &p);
  p.dk = main.dk, p.dv = main.dv;
  p.keys = of.launch.keys * of.of.shape.kv_heads;
  p.chunk = main.chunk, p.rows = to_int(rows);
  p.kv_heads = main.in.kv_heads, p.head_tiles = main.in.head_tiles, p.entries = main.entries;
  p.key_width = problem.head_dim + problem.rope_dim;
  p.value_width = problem.values_in_keys ? 0 : problem.value_dim;
  return p;
}

SparseBackwardFinishParams sparse_finish_params(const SparseBackwardCall& of) {
  SparseBackwardFinishParams p = {};
  fill(of, &p);
  p.tiles = to_int(of.launch.prepare_tiles);
  return p;
}

}  // namespace lathe
