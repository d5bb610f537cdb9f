// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Plans and launches what the implementations of the backward share.
#include "ops/attention/backward/step.h"

#include <algorithm>
#include <utility>

#include "codegen/base/integers.h"

namespace lathe {
namespace {

constexpr int kPrepareRows = 64, kPrepareThreads = 128;
constexpr int64_t kColumnsOfThread = 8;  // in finish

KernelSpec prepare_spec(const AttentionProblem& problem) {
  KernelSpec spec = shared_spec(LATHE_TEMPLATE("attention", "attention_backward_prepare",
                                               AttentionBackwardPrepareParams, tiles),
                                "AttentionBackwardPrepareSmem", kPrepareThreads / 32 * 4,
                                kPrepareThreads);  // a float32 of each warp
  spec.constants = {
      Constant::type("element", "Element", problem.element),
      attention_offsets(problem),
      Constant::integer("value_width", "kValueWidth", attention_padded_width(problem.value_dim)),
      Constant::integer("m", "kTileM", kPrepareRows),
      Constant::flag("packed", "kPacked", problem.packed),
      Constant::flag("sinks", "kSinks", problem.dsinks),
      Constant::flag("dlse", "kDlse", problem.dlse),
  };
  add_alignment(problem.alignment, &spec);
  return spec;
}

// Returns a main kernel with blocks of either kind.
KernelSpec with_blocks(KernelSpec main, bool apart) {
  for (Constant& constant : main.constants) {
    if (constant.name == "heads_apart") constant.value = apart ? 1 : 0;
  }
  return main;
}

// Fills tensors, sizes, grids and arrays of the workspace.
template <typename Params>
void fill_call(const AttentionBackwardCall& of, Params* p) {
  fill_tensors<attention::kTensors>(of.call, of.request.problem.packed, p);
  fill_sizes(of.request.problem, of.shape, p);
  fill_numbers(of.launch, p);
  fill_sections(of.workspace, of.call.workspace, p);
}

}  // namespace

Result<std::unique_ptr<AttentionBackward>> make_attention_backward(
    const AttentionBackwardProblem& problem, const DeviceFacts& facts) {
  if (!problem.backward) return make_attention_backward_ends(problem, facts);
  return make_step(attention_backwards(), problem, facts);
}

// put_mods sets these, or they are of the workspace.
template <>
inline constexpr auto kOtherPointers<attention::kTensors, AttentionBackwardPrepareParams> =
    std::tuple(&AttentionBackwardPrepareParams::lse2, &AttentionBackwardPrepareParams::delta,
               &AttentionBackwardPrepareParams::dsinks_parts);
template <>
inline constexpr auto kOtherPointers<attention::kTensors, AttentionBackwardParams> =
    std::tuple(&AttentionBackwardParams::capture, &AttentionBackwardParams::visits,
               &AttentionBackwardParams::visit_counts, &AttentionBackwardParams::lse2,
               &AttentionBackwardParams::delta);
template <>
inline constexpr auto kOtherPointers<attention::kTensors, AttentionBackwardFinishParams> =
    std::tuple(&AttentionBackwardFinishParams::dq_sums, &AttentionBackwardFinishParams::dk_parts,
               &AttentionBackwardFinishParams::dv_parts,
               &AttentionBackwardFinishParams::dsinks_parts);

AttentionBackward::AttentionBackward(KernelSlot main, const AttentionBackwardProblem& problem,
                                     const DeviceFacts& facts)
    : prepare(prepare_spec(problem)), problem_(problem), facts_(facts) {
  if (!main) return;
  if (problem.heads.together) together = with_blocks(*main, false);
  if (problem.heads.apart) apart = with_blocks(*main, true);
  if (problem.mod("mask_mod") == nullptr) return;
  mask_queries = attention_mask_queries_spec(problem, *main);
}

int64_t AttentionBackward::slices(const AttentionShape& shape) const {
  return ceil_div(shape.seq_k, tiling().n);
}

// Packed, the capacity is that of all sequences: most blocks of a grid by sequences are empty.
int64_t AttentionBackward::parts_to_fill(const AttentionShape& shape) const {
  return problem_.packed ? 1 : shape.sequences;
}

bool AttentionBackward::heads_apart(const AttentionShape& shape) const {
  if (shape.heads <= shape.kv_heads) return false;
  const int64_t blocks = bounded_product({parts_to_fill(shape), shape.kv_heads, slices(shape)});
  return blocks * 10 < multiprocessors_to_fill() * 8;
}

int64_t AttentionBackward::finish_blocks_of(int64_t rows, int64_t heads, int64_t width) const {
  return ceil_div(bounded_product({rows, heads, width / kColumnsOfThread}), finish->threads);
}

AttentionBackwardLaunch AttentionBackward::plan(const AttentionShape& shape,
                                                const AttentionGradients& wanted) const {
  AttentionBackwardLaunch out;
  const int64_t parts = problem_.packed ? 1 : shape.sequences;
  out.rows = parts * shape.seq_q, out.keys = parts * shape.seq_k;
  out.prepare_tiles = ceil_div(out.rows, prepare.numbers().m);
  out.prepare_blocks = bounded_product({out.prepare_tiles, shape.heads});
  if (wanted.dsinks) out.dsinks_blocks = ceil_div(shape.heads, finish->threads / 32);
  if (!main()) return out;
  out.apart = !together || (apart && heads_apart(shape));
  out.slices = slices(shape);
  out.main_blocks =
      bounded_product({out.slices, out.apart ? shape.heads : shape.kv_heads, shape.sequences});
  out.dq = sums_of_dq(shape, wanted, out);
  if (out.apart && wanted.dk) {
    out.dk_blocks = finish_blocks_of(out.keys, shape.kv_heads, problem_.head_dim);
  }
  if (out.apart && wanted.dv) {
    out.dv_blocks = finish_blocks_of(out.keys, shape.kv_heads, problem_.value_dim);
  }
  return out;
}

Status AttentionBackward::launch_prepare(const AttentionBackwardCall& of) const {
  if (of.launch.prepare_blocks == 0) return {};
  const AttentionSums& dq = of.launch.dq;
  AttentionBackwardPrepareParams p = {};
  fill_call(of, &p);
  p.row_batch_stride = problem_.packed ? 0 : of.shape.seq_q;
  p.row_head_stride = of.launch.rows;
  p.dq = of.call.workspace + of.workspace.dq_sums;
  p.dq_words = dq.accumulators * dq.rows * of.shape.heads * dq.width / 4;
  // With an order of dq its words are zeroed, and the sums are stored before they are added to.
  if (dq.turns > 0) {
    p.dq = of.call.workspace + of.workspace.dq_order;
    p.dq_words = dq.turns / 2;
  }
  p.tiles = static_cast<int>(of.launch.prepare_tiles);
  return prepare.launch(of.launch.prepare_blocks, &p, of.call.stream);
}

void AttentionBackward::fill_main(const AttentionBackwardCall& of,
                                  AttentionBackwardParams* p) const {
  const AttentionShape& shape = of.shape;
  const AttentionGradients& wanted = of.request.gradients;
  const bool packed = problem_.packed;
  char* workspace = of.call.workspace;
  fill_call(of, p);
  fill_scores(of.request, shape, of.call, of.lists, p);
  fill_windows(of.request, shape.seq_k, shape.seq_q, p);
  put_strides(dense_strides(shape.seq_q, shape.heads, p->head_dim, packed), &p->dq_batch_stride,
              &p->dq_token_stride, &p->dq_head_stride);
  p->dq_slice_stride = of.launch.rows * p->dq_token_stride;
  if (wanted.dq) p->dq = workspace + of.workspace.dq_sums;
  if (of.launch.apart) {
    if (wanted.dk) p->dk = workspace + of.workspace.dk_parts;
    if (wanted.dv) p->dv = workspace + of.workspace.dv_parts;
    put_strides(dense_strides(shape.seq_k, shape.heads, p->head_dim, packed), &p->dk_batch_stride,
                &p->dk_token_stride, &p->dk_head_stride);
    put_strides(dense_strides(shape.seq_k, shape.heads, p->value_dim, packed), &p->dv_batch_stride,
                &p->dv_token_stride, &p->dv_head_stride);
  }
  p->key_tiles = static_cast<int>(of.lists.tiles);
}

void AttentionBackward::fill_finish(const AttentionBackwardCall& of,
                                    AttentionBackwardFinishParams* p) const {
  const AttentionShape& shape = of.shape;
  const bool packed = problem_.packed;
  fill_call(of, p);
  put_strides(dense_strides(shape.seq_q, shape.heads, p->head_dim, packed),
              &p->dq_sums_batch_stride, &p->dq_sums_token_stride, &p->dq_sums_head_stride);
  p->dq_sums_slice_stride = of.launch.rows * p->dq_sums_token_stride;
  put_strides(dense_strides(shape.seq_k, shape.heads, p->head_dim, packed),
              &p->dk_parts_batch_stride, &p->dk_parts_token_stride, &p->dk_parts_head_stride);
  put_strides(dense_strides(shape.seq_k, shape.heads, p->value_dim, packed),
              &p->dv_parts_batch_stride, &p->dv_parts_token_stride, &p->dv_parts_head_stride);
  p->slices = static_cast<int>(of.launch.dq.accumulators);
  p->dq_blocks = static_cast<int>(of.launch.dq.finish_blocks);
  p->tiles = static_cast<int>(of.launch.prepare_tiles);
  p->softmax_scale = of.request.softmax_scale;
}

Status AttentionBackward::launch(const AttentionBackwardCall& of) const {
  LATHE_TRY(launch_prepare(of));
  if (of.launch.main_blocks > 0) LATHE_TRY(launch_main(of, of.launch.apart ? apart : together));
  return of.launch.finish_blocks() > 0 ? launch_finish(of) : Status();
}

}  // namespace lathe
