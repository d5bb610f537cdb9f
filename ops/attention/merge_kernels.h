// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// lse_merge on the host: its kernel, grid and cost. Pure functions of integers.
#pragma once

#include <cstdint>

#include "codegen/spec.h"
#include "ops/conv/kernels.h"  // Grid, Cost
#include "ops/kernel_problems.h"

namespace lathe {

KernelSpec lse_merge_spec(const LseMergeProblem& problem);

// `rows`: of all heads. A launch may have at most 2^31 - 1 blocks: the caller compares first.
int64_t lse_merge_blocks(const KernelSpec& spec, int64_t rows);
Cost lse_merge_cost(const LseMergeProblem& problem, int64_t rows, int64_t heads);

}  // namespace lathe
