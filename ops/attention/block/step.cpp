// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/block/step.h"

namespace lathe {

// put_mods sets the first ones; a step has neither sinks nor packed sequences, and lists of its
// own.
template <>
inline constexpr auto kOtherPointers<attention_block::kTensors, AttentionForwardParams> =
    std::tuple(&AttentionForwardParams::capture, &AttentionForwardParams::visits,
               &AttentionForwardParams::visit_counts, &AttentionForwardParams::sinks,
               &AttentionForwardParams::cu_seqlens_q, &AttentionForwardParams::cu_seqlens_k);
template <>
inline constexpr auto kOtherPointers<attention_block_bwd::kTensors, AttentionBackwardParams> =
    std::tuple(&AttentionBackwardParams::capture, &AttentionBackwardParams::visits,
               &AttentionBackwardParams::visit_counts, &AttentionBackwardParams::lse2,
               &AttentionBackwardParams::delta, &AttentionBackwardParams::cu_seqlens_q,
               &AttentionBackwardParams::cu_seqlens_k);

void AttentionBlock::fill(const AttentionBlockCall& of, AttentionForwardParams* p) const {
  const AttentionRequest& asked = of.request.attention;
  fill_tensors<attention_block::kTensors>(of.call, of.packed(), p);
  fill_scores(asked, of.shape, of.call, {}, p);
  fill_windows(asked, kMaxExtent, kMaxExtent, p);
  p->tiles = static_cast<int>(attention_tiles(tiling(), of.shape));
}

void AttentionBlockBackward::fill(const AttentionBlockCall& of,
                                  const AttentionBlockBackwardLaunch& launch,
                                  AttentionBackwardParams* p) const {
  const AttentionRequest& asked = of.request.attention;
  fill_tensors<attention_block_bwd::kTensors>(of.call, of.packed(), p);
  fill_scores(asked, of.shape, of.call, {}, p);
  fill_windows(asked, kMaxExtent, kMaxExtent, p);
  fill_sections(launch, of.call.workspace, p);
  p->delta = of.call.tensors[attention_block_bwd::delta].data;
  if (asked.problem.deterministic) {
    p->dq = of.call.workspace + launch.sums;
    put_strides(dense_strides(of.shape.seq_q, of.shape.heads, p->head_dim, false),
                &p->dq_batch_stride, &p->dq_token_stride, &p->dq_head_stride);
    p->dq_slice_stride = of.shape.sequences * p->dq_batch_stride;
  }
  p->slices = static_cast<int>(launch.slices);
}

}  // namespace lathe
