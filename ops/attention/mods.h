// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Mods of flash attention behind the plan: what a problem gives, what a call hands to kernels,
// and the lists of blocks that a mask_mod makes ahead.
#pragma once

#include "ops/attention/run.h"

namespace lathe {

// Texts, types of captured arrays and scalars into the request. INVALID_ARGUMENT for captures that
// nothing reads, and for gradients through a score_mod that has none.
Status read_mods(const Resolved& resolved, int capture_0, AttentionRequest* request);

// Lists of blocks in the workspace, and the launch that makes them.
struct AttentionLists {
  int64_t entries = 0, counts = 0;  // offsets in bytes
  int64_t stride = 0;               // entries of one list
  int64_t tiles = 0, blocks = 0;    // key tiles of a sequence and blocks of the launch: backward
};
// For the kernel that walks them; adds to `sections`.
Result<AttentionLists> forward_lists(const AttentionProblem& problem, const KernelSpec& walker,
                                     const AttentionShape& shape, WorkspaceLayout* layout);
Result<AttentionLists> backward_lists(const AttentionProblem& problem, const KernelSpec& walker,
                                      const AttentionShape& shape, WorkspaceLayout* layout);

// What mods read and where the lists are, into the parameters of a kernel.
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

}  // namespace lathe
