// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Loops in which a block waits for another one.
#pragma once

#include "sim/ptx/code.h"

namespace sim {

// A wait loop loads, with an order or a scope, what another block stores, compares it, and changes
// nothing: no memory, no barrier. This marks the branches that leave such loops, and sets
// sees_blocks and alone_if_sampled of the finished code.
void find_wait_loops(Function* function);

}  // namespace sim
