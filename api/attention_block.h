// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The steps of a ring behind the plan: attention to a block of keys that continues a partial
// result, its gradients, and the merge of two partial results.
#pragma once

#include "api/plan.h"

namespace lathe {

// What letters alone cannot say. After the checks by letter.
Status check_lse_merge(const lathe_problem& problem, const Extents& promised);

// Chooses the kernel; compiles nothing.
Result<std::unique_ptr<Work>> make_lse_merge(const lathe_problem& problem, const Extents& promised);

}  // namespace lathe
