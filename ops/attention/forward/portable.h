// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Makes specs of the portable forward. Kernels of other families and steps take over its constants,
// as its geometry serves them all.
#pragma once

#include <string>
#include <vector>

#include "ops/attention/forward/step.h"

namespace lathe {

// Returns the bytes of shared memory of the forward: q, and the stages of k and v. float32 is
// stored in three planes.
int attention_forward_smem(const AttentionProblem& problem, const AttentionTile& tile);
// Returns the float32 registers of a thread that the tile fixes: out, the scores, and their 16-bit
// copy.
int attention_forward_accumulators(const AttentionProblem& problem, const AttentionTile& tile);

// Returns all configurations worth trying, the default first. The tuner and choose() share this
// list.
std::vector<AttentionTile> attention_candidates(const AttentionProblem& problem,
                                                const DeviceFacts& facts);
// Returns why the device's shared memory is too small for any tile; empty: there is one.
std::string attention_tile_refusal(const AttentionProblem& problem, const DeviceFacts& facts);
// Returns the forward with a tile that the caller picked from the candidates.
KernelSpec attention_forward_spec(const AttentionProblem& problem, const AttentionTile& tile);

}  // namespace lathe
