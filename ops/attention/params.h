// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Fills what the parameter structs of the steps share.
#pragma once

#include "ops/attention/request.h"
#include "ops/fill.h"
#include "ops/workspace.h"

namespace lathe {

// Describes the lists of blocks in the workspace, and the launch that makes them.
struct AttentionLists {
  int64_t tiles = 0;                // of a sequence; there is a list for each tile and head
  int64_t stride = 0;               // entries of one list
  int64_t blocks = 0;               // of the launch: backward
  int64_t lists = 0;                // of all sequences and heads
  int64_t entries = 0, counts = 0;  // offsets in bytes
};
// Lay out the lists for the kernel that walks them, in `layout`. `backward_lists` returns
// UNSUPPORTED for more blocks than a launch takes.
AttentionLists forward_lists(const AttentionProblem& problem, const AttentionTiling& walker,
                             const AttentionShape& shape, WorkspaceLayout* layout);
Result<AttentionLists> backward_lists(const AttentionProblem& problem,
                                      const AttentionTiling& walker, const AttentionShape& shape,
                                      WorkspaceLayout* layout);

// Writes the inputs of mods and the addresses of the lists into the parameters of a kernel.
template <typename Params>
void put_mods(const AttentionRequest& request, const Call& call, const AttentionLists& lists,
              Params* p) {
  if (request.problem.mods.empty()) return;
  p->first_head = static_cast<int>(request.first_head);
  for (int i = 0; i < 4; ++i) {
    p->scalar[i] = request.scalars[i];
    if (request.captured[i] < 0) continue;
    const Tensor& tensor = call.tensors[request.captured[i]];
    p->capture[i] = tensor.data;
    p->capture_count[i] = tensor.data == nullptr ? 0 : static_cast<int>(tensor.extent[0]);
  }
  p->visits = call.workspace + lists.entries;
  p->visit_counts = call.workspace + lists.counts;
  p->visits_stride = lists.stride;
}

// Fills those sizes of the call that the struct has fields for.
template <typename Params>
void fill_sizes(const AttentionProblem& problem, const AttentionShape& shape, Params* p) {
  fill_numbers(shape, p);
  fill_numbers(problem, p);
}

// Drops a window that cuts no key, so that sums of positions and windows stay small. A window cuts
// no key if it reaches `left` positions back, or `right` ahead.
template <typename Params>
void fill_windows(const AttentionRequest& request, int64_t left, int64_t right, Params* p) {
  const int64_t back = request.window_left, ahead = request.window_right;
  p->window_left = static_cast<int>(back >= left ? -1 : back);
  p->window_right = static_cast<int>(ahead > 0 && ahead >= right ? -1 : ahead);
}

// Fills all that affects scores except windows: sizes, scale, softcap, slopes and mods.
template <typename Params>
void fill_scores(const AttentionRequest& request, const AttentionShape& shape, const Call& call,
                 const AttentionLists& lists, Params* p) {
  fill_sizes(request.problem, shape, p);
  p->alibi_batch_stride = request.alibi_rows ? shape.heads : 0;
  p->softmax_scale = request.softmax_scale;
  p->softcap = request.softcap;
  put_mods(request, call, lists, p);
}

// Returns the strides of rows [B, tokens, heads, width] without gaps.
inline AttentionStrides dense_strides(int64_t tokens, int64_t heads, int64_t width, bool packed) {
  return {packed ? 0 : tokens * heads * width, heads * width, width};
}

}  // namespace lathe
