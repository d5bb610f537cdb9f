// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Snippets of flash attention behind the plan: what a problem gives, what a call hands to kernels,
// and the lists of key blocks that a mask_mod makes ahead.
#pragma once

#include "api/attention_plan.h"
#include "templates/params/attention.h"

namespace lathe {

// Texts, types of captured arrays and scalars into the request. INVALID_ARGUMENT for captures that
// nothing reads, and for gradients through a score_mod that has none.
Status read_snippets(const lathe_problem& problem, AttentionRequest* request);

AttentionCaptures captures_of(const AttentionRequest& request, const Call& call);

// Where a kernel's lists lie in the workspace.
struct MaskLists {
  int64_t entries = 0, counts = 0;  // offsets in bytes
  int64_t stride = 0;               // entries of one list
};
// Of the kernel that walks them; adds to `sections`.
Result<MaskLists> mask_lists(const AttentionProblem& problem, const KernelSpec& walker,
                             const AttentionShape& shape, Sections* sections);

}  // namespace lathe
