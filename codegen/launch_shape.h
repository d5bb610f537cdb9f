// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Every family's geometry answers these: how large a launch is and what it moves.
#pragma once

#include <cstdint>

namespace lathe {

struct Grid {
  unsigned x = 1, y = 1, z = 1;
};

// A call must move and compute at least this.
struct Cost {
  uint64_t minimum_bytes = 0;  // every input read once, every output written once
  uint64_t bytes = 0;          // what these tiles move, halo rows and partial results included
  uint64_t flops = 0;
  uint64_t tensor_ops = 0;  // what matrix instructions do, pairs that do not count included
  // Cycles of the thread blocks that follow one another on a multiprocessor, where a family knows
  // them: what is left if memory and tensor cores were free.
  uint64_t chain_cycles = 0;
};

}  // namespace lathe
