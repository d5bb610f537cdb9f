// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Launches whose results nobody wants (LATHE_SIM_SAMPLE_BLOCKS) run as seldom as can be.
#pragma once

#include "sim/driver/state.h"

namespace sim::driver {

// Calls run_grid, or returns what an earlier launch counted that differs from this one only in
// where large operands are: same kernel, grid and parameters, pointers into small allocations read
// as what they point to, into larger ones as null. Kernels that order blocks always run.
//
// `instructions` bounds the blocks that run: as many of settings.sample_blocks as execute about so
// many warp instructions, two at least, which run first to see what one costs. 0 runs all of them.
Outcome run_sampled(const Grid& grid, const Device& device, const Settings& settings,
                    uint64_t instructions);

}  // namespace sim::driver
