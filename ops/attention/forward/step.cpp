// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/forward/step.h"

#include <utility>

namespace lathe {

// put_mods sets these.
template <>
inline constexpr auto kOtherPointers<attention::kTensors, AttentionForwardParams> =
    std::tuple(&AttentionForwardParams::capture, &AttentionForwardParams::visits,
               &AttentionForwardParams::visit_counts);

AttentionForward::AttentionForward(KernelSpec spec, const AttentionProblem& problem)
    : kernel(std::move(spec)) {
  if (problem.mod("mask_mod") == nullptr) return;
  mask_blocks = attention_mask_blocks_spec(problem, *kernel);
}

void AttentionForward::fill(const AttentionForwardCall& of, AttentionForwardParams* p) const {
  fill_tensors<attention::kTensors>(of.call, of.request.problem.packed, p);
  fill_scores(of.request, of.shape, of.call, of.lists, p);
  fill_windows(of.request, of.shape.seq_k, of.shape.seq_q, p);
  p->tiles = static_cast<int>(attention_tiles(tiling(), of.shape));
}

Status AttentionForward::list_blocks(const AttentionForwardCall& of,
                                     const AttentionForwardParams& p) const {
  if (!mask_blocks) return {};
  return mask_blocks.launch(attention_forward_blocks(tiling(), of.whole), &p, of.call.stream);
}

}  // namespace lathe
