// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Declares what Hopper's block step takes over from Hopper's forward.
#pragma once

#include "ops/attention/forward/step.h"
#include "templates/params/tensor_map.h"
// It uses the one above.
#include "templates/params/attention_warpgroups.h"

namespace lathe {

std::string attention_warpgroups_refusal(const AttentionProblem& problem, const DeviceFacts& facts);
// Returns the default kernel of a problem that is covered.
KernelSpec attention_warpgroups_spec(const AttentionProblem& problem);

// Returns the kernel's constants, shared memory and maps for keys in pages of multiples of
// `run` keys, which a block of keys is a multiple of too. Problems are packed and pack_gqa.
KernelSpec attention_paged_spec(const AttentionProblem& problem, int run);

// Deals tiles out to the blocks of a persistent grid: templates/attention/sm90/tile_order.cuh.
// `tiles` counts those of all heads and sequences; the grid has a block for each of them, but at
// most `most` blocks.
AttentionTileOrder attention_tile_order(const AttentionTiling& kernel,
                                        const AttentionForwardParams& f, int64_t tiles,
                                        int64_t most);

}  // namespace lathe
