// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Chooses and launches the block steps of ring attention by warpgroups with roles (sm_90a): kernels
// that compete with the portable ones for the same steps, with the same results within tolerance.
#pragma once

#include "ops/attention/block/kernels.h"
#include "ops/tensors.h"
#include "templates/params/attention.h"
#include "templates/params/attention_backward.h"
#include "templates/params/tensor_map.h"
// They use the three above.
#include "templates/params/attention_backward_warpgroups.h"
#include "templates/params/attention_warpgroups.h"

namespace lathe {

// Says why the forward's step has no kernel for a problem or a device; null if it has one.
const char* attention_block_warpgroups_refusal(const AttentionProblem& problem,
                                               const DeviceFacts& facts);
KernelSpec attention_block_warpgroups_spec(const AttentionProblem& problem);

// These functions say the same of the backward's step.
const char* attention_block_backward_warpgroups_refusal(const AttentionProblem& problem,
                                                        const DeviceFacts& facts);
KernelSpec attention_block_backward_warpgroups_spec(const AttentionProblem& problem);

// Encodes the maps of q, k and v and launches. `tiles` counts those of all heads and sequences.
Status launch_attention_block_warpgroups(const KernelSlot& kernel, const AttentionBlockParams& step,
                                         int64_t tiles, int64_t multiprocessors,
                                         CUstream_st* stream);
// Encodes the maps of q, k, v and dout and launches; `blocks` counts the tiles of keys.
Status launch_attention_block_backward_warpgroups(const KernelSlot& kernel,
                                                  const AttentionBlockBackwardParams& step,
                                                  int64_t blocks, CUstream_st* stream);

}  // namespace lathe
