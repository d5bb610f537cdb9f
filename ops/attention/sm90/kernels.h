// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Chooses and launches the forward by warpgroups with roles (sm_90a): a kernel that competes with
// the portable one for the same step, with the same results within tolerance.
#pragma once

#include "ops/attention/kernels.h"
#include "ops/tensors.h"
#include "templates/params/attention.h"
#include "templates/params/tensor_map.h"
// It uses the two above.
#include "templates/params/attention_warpgroups.h"

namespace lathe {

// Says why the kernel does not cover a problem or a device; null if it does.
const char* attention_warpgroups_refusal(const AttentionProblem& problem, const DeviceFacts& facts);

KernelSpec attention_warpgroups_spec(const AttentionProblem& problem);
// Returns the kernels worth trying, of which the one above is the first.
std::vector<KernelSpec> attention_warpgroups_specs(const AttentionProblem& problem);

// Encodes the maps of q, k and v beside `p->forward` and launches. `blocks` counts tiles of all
// heads and sequences.
Status launch_attention_warpgroups(const KernelSlot& kernel, int64_t blocks,
                                   int64_t multiprocessors, CUstream_st* stream,
                                   AttentionWarpgroupsParams* p);

}  // namespace lathe
