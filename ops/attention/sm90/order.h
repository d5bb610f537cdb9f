// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Deals tiles out to the blocks of a persistent grid: templates/attention/sm90/tile_order.cuh.
#pragma once

#include <cstdint>

#include "ops/kernel.h"
#include "templates/params/attention.h"
#include "templates/params/tensor_map.h"
// It uses the two above.
#include "templates/params/attention_warpgroups.h"

namespace lathe {

// `tiles` counts those of all heads and sequences; the grid has a block for each of them, but at
// most `most` blocks.
AttentionTileOrder attention_tile_order(const KernelNumbers& kernel,
                                        const AttentionForwardParams& f, int64_t tiles,
                                        int64_t most);

}  // namespace lathe
