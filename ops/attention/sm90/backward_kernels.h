// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Chooses and launches the backward by warpgroups with roles (sm_90a): a main kernel that competes
// with the portable one, and a last one that knows in which order it leaves the sums of dq.
#pragma once

#include "codegen/choice.h"
#include "ops/attention/backward/kernels.h"
#include "ops/tensors.h"
#include "templates/params/attention_backward.h"
#include "templates/params/tensor_map.h"
// It uses the two above.
#include "templates/params/attention_backward_warpgroups.h"

namespace lathe {

// Says why the kernels do not cover a problem or a device; null if they do.
const char* attention_backward_warpgroups_refusal(const AttentionProblem& problem,
                                                  const DeviceFacts& facts);

// Returns the main kernel, with a block for each query head if `apart`. With mods it has forms, of
// which a later one takes fewer registers.
KernelSpec attention_backward_warpgroups_spec(const AttentionProblem& problem, bool apart,
                                              int form = 0);
// Returns the forms that were not rejected yet, the default first, for a problem that is covered.
CandidateGroup attention_backward_warpgroups_group(const AttentionProblem& problem,
                                                   const DeviceFacts& facts, bool apart);
// Returns the last kernel for a main kernel by warpgroups.
KernelSpec attention_backward_warpgroups_finish_spec(const KernelSpec& main);
// Says whether a spec is of the main kernel.
bool is_attention_backward_warpgroups(const KernelSpec& spec);

// Returns the tiles of dq of one head of a sequence, or of all packed sequences.
int64_t attention_dq_tiles(const KernelNumbers& main, bool packed, const AttentionShape& shape);

// Returns how many heads take tickets in turns in a deterministic backward. It changes how long
// blocks wait for each other, and no result.
int64_t attention_dq_section(const KernelNumbers& main, const DeviceFacts& facts,
                             const AttentionShape& shape);

// Encodes the maps of q, k, v and dout and launches. `dq_order`: words of the workspace, or null.
Status launch_attention_backward_warpgroups(const KernelSlot& kernel,
                                            const AttentionBackwardParams& backward,
                                            const AttentionBackwardLaunch& launch, void* dq_order,
                                            CUstream_st* stream);

}  // namespace lathe
