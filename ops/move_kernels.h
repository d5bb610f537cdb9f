// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What packs, unpacks and adds up the rows that ranks send each other: kernels and grids.
#pragma once

#include <cstdint>

#include "codegen/launch_shape.h"
#include "codegen/spec.h"

namespace lathe {

// `word_bytes`: 16 or 4, of which a row of one head has a whole number.
KernelSpec move_rows_spec(int word_bytes);
// Sums of `in` that are rounded to `out`. Listed: how many terms a token has varies.
KernelSpec sum_rows_spec(Dtype in, Dtype out, bool listed);

// Blocks for that many words, or columns of all heads; the caller compares with 2^31 - 1.
int64_t move_rows_blocks(const KernelSpec& spec, int64_t words);
int64_t sum_rows_blocks(const KernelSpec& spec, int64_t columns);

}  // namespace lathe
