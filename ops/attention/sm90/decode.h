// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Chooses and launches latent decoding by warpgroups with roles (sm_90a): a kernel that competes
// with the portable one for the same step, with the same results within tolerance.
#pragma once

#include "ops/attention/decode/kernels.h"
#include "templates/params/attention.h"
#include "templates/params/tensor_map.h"
// It uses the two above.
#include "templates/params/attention_decode_warpgroups.h"

namespace lathe {

// Says why the kernel covers no call of a problem, or none on a device; null if it may. `page` is
// the declared one, -1: not known.
const char* attention_decode_warpgroups_refusal(const AttentionProblem& problem,
                                                const DeviceFacts& facts,
                                                const AttentionDecodeRows& rows);
// Says whether a call takes the kernel of a problem that has it: copies bring whole runs of rows of
// a page, and with few rows the portable kernel wastes less.
bool attention_decode_takes_warpgroups(const AttentionDecodeShape& shape);

KernelSpec attention_decode_warpgroups_spec(const AttentionProblem& problem);

// Encodes the map of the keys and launches.
Status launch_attention_decode_warpgroups(const KernelSlot& kernel,
                                          const AttentionDecodeParams& decode, int64_t blocks,
                                          CUstream_st* stream);

}  // namespace lathe
