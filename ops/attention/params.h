// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// From a call of flash_attention, or of one of its steps, to the parameters of kernels.
#pragma once

#include "ops/attention/mods.h"
#include "ops/attention/run.h"
#include "ops/fill.h"
#include "templates/params/attention.h"
#include "templates/params/attention_backward.h"

namespace lathe {

// Sizes of the call, in the fields that a struct has of them.
template <typename Params>
void fill_sizes(const AttentionProblem& problem, const AttentionShape& shape, Params* p) {
  if constexpr (requires { p->sequences; }) p->sequences = static_cast<int>(shape.sequences);
  p->heads = static_cast<int>(shape.heads);
  if constexpr (requires { p->kv_heads; }) p->kv_heads = static_cast<int>(shape.kv_heads);
  p->seq_q = static_cast<int>(shape.seq_q);
  if constexpr (requires { p->seq_k; }) p->seq_k = static_cast<int>(shape.seq_k);
  p->head_dim = problem.head_dim;
  p->value_dim = problem.value_dim;
}

// A window that cuts nothing is none, so that sums of positions and windows stay small. A window
// cuts nothing that reaches `left` positions back, or `right` ahead.
template <typename Params>
void fill_windows(const AttentionRequest& request, int64_t left, int64_t right, Params* p) {
  const int64_t back = request.window_left, ahead = request.window_right;
  p->window_left = static_cast<int>(back >= left ? -1 : back);
  p->window_right = static_cast<int>(ahead > 0 && ahead >= right ? -1 : ahead);
}

// Everything that becomes of scores but windows: sizes, scale, softcap, slopes and mods.
template <typename Params>
void fill_scores(const AttentionRequest& request, const AttentionShape& shape, const Call& call,
                 const AttentionLists& lists, Params* p) {
  fill_sizes(request.problem, shape, p);
  p->alibi_batch_stride = request.alibi_rows ? shape.heads : 0;
  p->softmax_scale = request.softmax_scale;
  p->softcap = request.softcap;
  put_mods(request, call, lists, p);
}

// Strides of rows without gaps: [B, tokens, heads, width].
inline AttentionStrides dense_strides(int64_t tokens, int64_t heads, int64_t width, bool packed) {
  return {packed ? 0 : tokens * heads * width, heads * width, width};
}

AttentionForwardParams attention_forward_params(const AttentionRequest& request,
                                                const KernelSpec& spec, const AttentionShape& shape,
                                                const Call& call, const AttentionLists& lists);

// One call of the backward, with the layout of its workspace.
struct AttentionBackwardCall {
  const AttentionRequest& request;
  const AttentionShape& shape;
  const AttentionBackwardLaunch& launch;
  const AttentionBackwardWorkspace& workspace;
  const Call& call;
};
AttentionBackwardPrepareParams attention_prepare_params(const AttentionBackwardCall& of);
AttentionBackwardParams attention_backward_params(const AttentionBackwardCall& of,
                                                  const AttentionLists& lists);
AttentionBackwardFinishParams attention_finish_params(const AttentionBackwardCall& of);

}  // namespace lathe
