// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What the values of a block step's pairs and positions must hold to. Kernels stay within bounds
// whatever is there; the program can look and says what is wrong.
#pragma once

#include "api/cli/problem.h"

namespace lathe::cli {

// Refuses intervals outside the rows or keys, out of order, or that count a key twice for a row,
// and positions that are too far apart to subtract. Nothing if the operator has neither.
void check_pairs(const Problem& problem, const TensorMap& inputs);

}  // namespace lathe::cli
