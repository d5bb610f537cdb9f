// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Makes specs of the portable block steps, whose constants Hopper's take over.
#pragma once

#include "ops/attention/backward/portable.h"
#include "ops/attention/block/step.h"
#include "ops/attention/forward/portable.h"

namespace lathe {

// Returns a step's problem with the constants that a step fixes.
AttentionProblem attention_block_problem(AttentionProblem problem);
// Return the specs with a tile that the caller picked from the candidates.
KernelSpec attention_block_spec(const AttentionProblem& problem, const AttentionTile& tile);
KernelSpec attention_block_backward_spec(const AttentionProblem& problem,
                                         const AttentionBackwardTile& tile);

}  // namespace lathe
