// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Makes specs of the portable kernels that decode.
#pragma once

#include <vector>

#include "ops/attention/decode/step.h"

namespace lathe {

KernelSpec attention_decode_spec(const AttentionProblem& problem, const AttentionTile& tile);
// Returns tiles of `rows` rows that fit the device, the default first. If four warps own more rows
// than that, warps share the keys of a block. Stages are chosen so that two blocks share a
// multiprocessor if its memory allows.
std::vector<AttentionTile> attention_decode_candidates(const AttentionProblem& problem,
                                                       const DeviceFacts& facts, int rows);
int attention_decode_smem(const AttentionProblem& problem, const AttentionTile& tile);

// Sets what the specs of both kinds have in common; `width` and `value_width` are those of tiles.
void add_decode_constants(const AttentionProblem& problem, const AttentionTile& tile, int width,
                          int value_width, KernelSpec* spec);

// The same of a problem whose values are columns of its keys. The tiles have fewer rows where the
// device's shared memory is too small for `rows`.
std::vector<AttentionTile> attention_latent_candidates(const AttentionProblem& problem,
                                                       const DeviceFacts& facts, int rows);
int attention_latent_smem(const AttentionProblem& problem, const AttentionTile& tile);
KernelSpec attention_latent_spec(const AttentionProblem& problem, const AttentionTile& tile);

}  // namespace lathe
